/* SPDX-License-Identifier: Apache-2.0
 *
 * Host functions of kernels, as nvcc leaves them in a program: a launch names a kernel
 * by such an address, and its symbol is the kernel's mangled name. They are never run.
 */
#include "settings.h"

#define HOST_FUNCTION(name, number)			\
	STUB_API int name(void);			\
	int name(void)					\
	{						\
		return number;				\
	}

HOST_FUNCTION(_Z9vectorAddPKfS0_Pfi, 1)
HOST_FUNCTION(_Z6matmulPKfS0_Pfiii, 2)
HOST_FUNCTION(_Z7softmaxPKfPfii, 3)
HOST_FUNCTION(_Z9layerNormPKfPfi, 4)
HOST_FUNCTION(_Z10sgdMomentumPfS_PKff, 5)
