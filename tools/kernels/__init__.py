"""`make test-kernels`: the probes on other kernels, each in a virtual machine of its own."""
