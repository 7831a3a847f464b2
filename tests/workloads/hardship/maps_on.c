/* Maps a file for execution again and again, as fast as it can, until its input ends.
 *
 *     maps_on FILE...
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct pollfd told = {.fd = 0, .events = POLLIN};
	int fds[16], files = 0;

	while (files < argc - 1 && files < 16) {
		fds[files] = open(argv[files + 1], O_RDONLY);
		if (fds[files++] < 0)
			return 1;
	}
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while (poll(&told, 1, 0) == 0)
		for (int i = 0; i < 1000; i++) {
			void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fds[i % files], 0);
			if (at == MAP_FAILED)
				return 1;
			munmap(at, 4096);
		}
	return 0;
}
