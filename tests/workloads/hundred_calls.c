/* One allocation and a hundred waits as soon as it runs, and it is over: whoever looks later sees nothing. */
int cudaMalloc(void **at, unsigned long bytes);
int cudaStreamSynchronize(void *stream);

int main(void)
{
	void *at;

	cudaMalloc(&at, 1024);
	for (int i = 0; i < 100; i++)
		cudaStreamSynchronize(0);
	return 0;
}
