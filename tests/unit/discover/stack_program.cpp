/* Walks its own stack by frame pointers and prints the addresses, as the kernel would see them. */
#include <cstdio>

namespace shop {
struct Item {
	int price;
};

template <class T> struct Basket {
	__attribute__((noinline)) int walk(int depth);
};

static __attribute__((noinline)) int print_stack()
{
	void **frame = (void **)__builtin_frame_address(0);

	for (int i = 0; i < 5; i++) {
		std::printf("%lx ", (unsigned long)frame[1]);
		frame = (void **)frame[0];
	}
	std::printf("\n");
	return std::fflush(stdout);
}

template <class T> int Basket<T>::walk(int depth)
{
	int deeper = depth ? walk(depth - 1) : print_stack();
	__asm__ volatile("");
	return deeper + 1;
}
}

extern "C" __attribute__((noinline)) int begin_shopping()
{
	int spent = shop::Basket<shop::Item>().walk(2);
	__asm__ volatile("");
	return spent;
}

int main()
{
	int spent = begin_shopping();
	int read = std::getchar();
	return spent + read;
}
