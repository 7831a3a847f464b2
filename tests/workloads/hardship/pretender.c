/* Pretends to be an interpreter, and once it is believed breaks every rule one after the other.
 *
 *     python3.N [all | mutating CALLS | exec | plain]
 *
 * Prints `ready PID`, waits for a line and makes one allocation in each broken state, its
 * size telling which, and one in a sound state after it (1000 more): `within` at line 15
 * called by `between` at 25 called by `<module>` at 35. Prints {"case", "bytes"} for each
 * and `done`. `mutating`: another thread breaks and mends the chain while it calls. `exec`:
 * becomes a sound one anew while a thread of it calls.
 */
#include "pretender.h"

static void *within, *between, *module;		/* the frames of a sound chain */
static void *code;				/* of the innermost one */
static char *gone;				/* where no memory is any more */

/* A sound chain, all of it new: what was met before would not be read again. */
static void be_sound(void)
{
	code = new_code("within", 10);
	module = new_frame(new_code("<module>", 30), NULL);
	between = new_frame(new_code("between", 20), module);
	within = new_frame(code, between);
	run(within);
	pthread_setspecific(key, state);
}

static void lose_a_page(void)
{
	gone = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, 4096);
}

static void *long_chain(size_t frames, void *last)
{
	char *memory = calloc(frames, 128);

	for (size_t i = 0; i < frames; i++)
		frame_at(memory + 128 * i, code, i + 1 < frames ? memory + 128 * (i + 1) : last);
	return memory;
}

#define NAME ((void *)AT(code, CODE_NAME))
#define FILE_NAME ((void *)AT(code, CODE_FILE))
#define LINES ((void *)AT(code, CODE_LINES))
#define BACK(where) (AT(within, FRAME_BACK) = (uint64_t)(where))
#define OTHER_NAME(text) (AT(code, CODE_NAME) = (uint64_t)(text))

static void sound(void) {}
static void own_caller(void) { BACK(within); }
static void circle_of_two(void) { AT(between, FRAME_BACK) = (uint64_t)within; }
static void circle_behind(void) { AT(module, FRAME_BACK) = (uint64_t)between; }

static void circle_of_a_thousand(void)
{
	char *chain = long_chain(1000, NULL);

	AT(chain + 128 * 999, FRAME_BACK) = (uint64_t)chain;
	run(chain);
}

static void circle_of_fifty_thousand(void)
{
	char *chain = long_chain(50000, NULL);

	AT(chain + 128 * 49999, FRAME_BACK) = (uint64_t)chain;
	run(chain);
}

static void a_million_deep(void) { run(long_chain(1000000, between)); }
static void caller_unmapped(void) { BACK(gone); }
static void caller_not_canonical(void) { BACK(0x8000000000000000); }
static void caller_in_the_kernel(void) { BACK(0xffffffff81000000); }
static void caller_at_the_end(void) { BACK(~0ULL - 7); }
static void caller_at_one(void) { BACK(1); }
static void caller_is_a_text(void) { BACK(NAME); }
static void no_caller(void) { BACK(NULL); }

static void caller_half_mapped(void)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(pages + 4096, 4096);
	AT(pages, 4096 - 24) = (uint64_t)code;
	AT(pages, 4096 - 16) = (uint64_t)between;
	BACK(pages + 4096 - 24);
}

static void code_unmapped(void) { go_to(within, gone); }
static void code_missing(void) { AT(within, FRAME_CODE) = 0; }
static void code_in_the_kernel(void) { go_to(within, (void *)0xffffffff81000000); }
static void code_is_a_text(void) { go_to(within, NAME); }
static void code_of_a_caller_is_noise(void) { AT(between, FRAME_CODE) = 0x1234567890abcdef; }

static void name_unmapped(void) { OTHER_NAME(gone); }
static void name_missing(void) { OTHER_NAME(0); }
static void name_is_the_code(void) { OTHER_NAME(code); }
static void name_is_noise(void) { memset((char *)NAME + OBJECT_TYPE, 0xa5, 256); }
static void name_huge(void) { AT(NAME, TEXT_LENGTH) = 1ULL << 62; }
static void name_negative(void) { AT(NAME, TEXT_LENGTH) = ~0ULL; }
static void name_of_4_gb(void) { AT(NAME, TEXT_LENGTH) = 1ULL << 32; }
static void file_huge(void) { AT(FILE_NAME, TEXT_LENGTH) = 1ULL << 62; }
static void file_missing(void) { AT(code, CODE_FILE) = 0; }

static void name_of_width(uint32_t width, uint32_t rest)
{
	AT32(NAME, TEXT_STATE) = (width | rest) << TEXT_KIND_SHIFT;
}

static void name_of_width_0(void) { name_of_width(0, 3 << 3); }
static void name_of_width_3(void) { name_of_width(3, 3 << 3); }
static void name_of_width_7(void) { name_of_width(7, 3 << 3); }
static void name_not_compact(void) { name_of_width(1, 1 << 4); }
static void name_ascii_and_wide(void) { name_of_width(4, 3 << 3); }

static void lines_unmapped(void) { AT(code, CODE_LINES) = (uint64_t)gone; }
static void lines_missing(void) { AT(code, CODE_LINES) = 0; }
static void lines_huge(void) { AT(LINES, BYTES_LENGTH) = 1ULL << 62; }
static void lines_negative(void) { AT(LINES, BYTES_LENGTH) = ~0ULL; }
static void lines_empty(void) { AT(LINES, BYTES_LENGTH) = 0; }
static void lines_cut_short(void) { AT(LINES, BYTES_LENGTH) = 1; }
static void lines_are_a_text(void) { AT(code, CODE_LINES) = (uint64_t)NAME; }

static void first_line_negative(void) { AT32(code, CODE_FIRST_LINE) = -1000; }
static void first_line_huge(void) { AT32(code, CODE_FIRST_LINE) = 0x7fffffff; }

static void instruction_far_away(void)
{
#ifdef CODE_BYTECODE
	AT(within, FRAME_AT) = 0x7f0000000000;
#else
	AT32(within, FRAME_AT) = 0x60000000;
#endif
}

static void instruction_negative(void)
{
#ifdef CODE_BYTECODE
	AT(within, FRAME_AT) = (uint64_t)code - 4096;
#else
	AT32(within, FRAME_AT) = -1000;
#endif
}

static void no_frame(void) { run(NULL); }
static void frame_unmapped(void) { run(gone); }
static void state_unmapped(void) { pthread_setspecific(key, gone); }
static void state_missing(void) { pthread_setspecific(key, NULL); }

/* Freed and used for something else. */
static void state_freed(void)
{
	char *old = new(4096);

	memcpy(old, state, 4096);
	memset(old + 64, 0x5a, 4032);
	pthread_setspecific(key, old);
}

static const struct {
	const char *name;
	void (*cause)(void);
} CASES[] = {
#define CASE(name) {#name, name}
	CASE(sound), CASE(own_caller), CASE(circle_of_two), CASE(circle_behind), CASE(circle_of_a_thousand),
	CASE(circle_of_fifty_thousand), CASE(a_million_deep), CASE(caller_unmapped), CASE(caller_not_canonical),
	CASE(caller_in_the_kernel), CASE(caller_at_the_end), CASE(caller_at_one), CASE(caller_is_a_text),
	CASE(no_caller), CASE(caller_half_mapped), CASE(code_unmapped), CASE(code_missing),
	CASE(code_in_the_kernel), CASE(code_is_a_text), CASE(code_of_a_caller_is_noise), CASE(name_unmapped),
	CASE(name_missing), CASE(name_is_the_code), CASE(name_is_noise), CASE(name_huge), CASE(name_negative),
	CASE(name_of_4_gb), CASE(file_huge), CASE(file_missing),
	CASE(name_of_width_0), CASE(name_of_width_3), CASE(name_of_width_7), CASE(name_not_compact),
	CASE(name_ascii_and_wide), CASE(lines_unmapped), CASE(lines_missing), CASE(lines_huge),
	CASE(lines_negative), CASE(lines_empty), CASE(lines_cut_short), CASE(lines_are_a_text),
	CASE(first_line_negative), CASE(first_line_huge), CASE(instruction_far_away),
	CASE(instruction_negative), CASE(no_frame), CASE(frame_unmapped), CASE(state_unmapped),
	CASE(state_missing), CASE(state_freed),
};

static int allocate(size_t bytes)
{
	void *pointer;

	return cudaMalloc(&pointer, bytes);
}

static int every_case(void)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
		be_sound();
		CASES[i].cause();
		failed += allocate(1 + i);
		be_sound();
		failed += allocate(1001 + i);
		printf("{\"case\": \"%s\", \"bytes\": %zu}\n", CASES[i].name, 1 + i);
	}
	return failed;
}

static volatile int over;

/* Breaks and mends what the other thread is in; each write is whole by itself. */
static void *mutate(void *other)
{
	uint64_t callers[] = {(uint64_t)between, (uint64_t)within, 0, (uint64_t)gone, ~7ULL, (uint64_t)module};
	uint64_t codes[] = {(uint64_t)code, (uint64_t)other, (uint64_t)gone, (uint64_t)NAME};
	uint64_t texts[] = {(uint64_t)NAME, (uint64_t)gone, AT(other, CODE_LINES), 0};
	uint64_t frames[] = {(uint64_t)within, (uint64_t)between, (uint64_t)gone};
	uint64_t random = 1;

	while (!over) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		BACK(callers[(random >> 33) % 6]);
		AT(within, FRAME_CODE) = codes[(random >> 37) % 4];
		OTHER_NAME(texts[(random >> 41) % 4]);
		AT(code, CODE_LINES) = (random >> 45) % 2 ? (uint64_t)gone : AT(other, CODE_LINES);
		run((void *)frames[(random >> 49) % 3]);
#ifdef CODE_VERSION
		AT32(code, CODE_VERSION) = random >> 53;
#endif
	}
	return NULL;
}

static int while_it_changes(long calls)
{
	pthread_t thread;
	int failed = 0;

	be_sound();
	pthread_create(&thread, NULL, mutate, new_code("other", 40));
	while (calls--)
		failed += allocate(7);
	over = 1;
	pthread_join(thread, NULL);
	be_sound();
	return failed + allocate(8);
}

static void *call_on(void *unused)
{
	pthread_setspecific(key, unused);
	AT(state, STATE_THREAD_ID) = (uint64_t)pthread_self();	/* from now on it is this thread's */
	pthread_setspecific(key, state);
	for (;;)
		allocate(9);
	return NULL;
}

static int become_anew(const char *program)
{
	pthread_t thread;

	pthread_create(&thread, NULL, call_on, NULL);
	usleep(100000);
	execl(program, program, "plain", NULL);
	return 1;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "all";
	int failed = 0;

	setlinebuf(stdout);
	lose_a_page();
	new_interpreter();
	be_sound();
	announce_and_wait();
	if (!strcmp(what, "all"))
		failed = every_case();
	else if (!strcmp(what, "mutating"))
		failed = while_it_changes(atol(words[2]));
	else if (!strcmp(what, "exec"))
		failed = become_anew("/proc/self/exe");
	else
		failed = allocate(10);
	finish_and_wait();
	return failed != 0;
}
