/* An NVML whose cards are a text file: libnvidia-ml.so.1 for tests without a card.
 *
 * INGERO_NVML_STATE names the file. Lines are `KEY VALUE` for all cards or `N.KEY VALUE` for
 * card N; the last one counts and the file is read anew at every call, so a test changes a
 * card while somebody looks at it. `error.FUNCTION CODE` makes a function fail, `hang 1`
 * keeps every call from returning, `process PID BYTES SM_PERCENT` puts a process on the cards.
 * Only what is asked for is here; what a function returns follows NVIDIA's reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, TOO_SMALL = 7, NOT_FOUND = 6, LINE = 256, MOST = 16 };
typedef unsigned long long u64;
typedef void *device;

static FILE *state(void)
{
	const char *path = getenv("INGERO_NVML_STATE");
	return path ? fopen(path, "r") : NULL;
}

/* The value of a key for a card, or what is given when nobody set one. */
static u64 number(int card, const char *key, u64 otherwise)
{
	char line[LINE], mine[LINE], name[LINE], value[LINE];
	FILE *file = state();

	snprintf(mine, sizeof(mine), "%d.%s", card, key);
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%255s %255s", name, value) == 2 && (!strcmp(name, key) || !strcmp(name, mine)))
			otherwise = strtoull(value, NULL, 0);
	if (file)
		fclose(file);
	return otherwise;
}

static int enter(device handle, const char *function)
{
	char key[LINE];
	int card = handle ? (int)(long)handle - 1 : -1;

	while (number(card, "hang", 0))
		usleep(10000);
	snprintf(key, sizeof(key), "error.%s", function);
	return (int)number(card, key, OK);
}

#define CARD(handle) ((int)(long)(handle) - 1)
#define ENTER(handle) do { int code = enter(handle, __func__); if (code) return code; } while (0)

static u64 now_us(void)
{
	struct timespec at;
	clock_gettime(CLOCK_REALTIME, &at);
	return (u64)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }

static int text(char *out, unsigned size, const char *format, int card)
{
	snprintf(out, size, format, card);
	return OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(NULL); return text(out, size, "580.1", 0); }
int nvmlDeviceGetCount_v2(unsigned *out) { ENTER(NULL); *out = number(-1, "cards", 1); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out)
{
	*out = (device)(long)(index + 1);
	ENTER(*out);
	return index < number(-1, "cards", 1) ? OK : INVALID;
}
int nvmlDeviceGetName(device d, char *out, unsigned size) { ENTER(d); return text(out, size, "Stub H200", 0); }
int nvmlDeviceGetUUID(device d, char *out, unsigned size)
{
	ENTER(d);
	return text(out, size, "GPU-00000000-0000-0000-0000-%012d", CARD(d));
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(device d, struct pci *out)
{
	ENTER(d);
	memset(out, 0, sizeof(*out));
	return text(out->bus_id, sizeof(out->bus_id), "00000000:%02d:00.0", CARD(d));
}

struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(device d, struct memory *out)
{
	ENTER(d);
	out->total = number(CARD(d), "memory_total", 150754820096ULL);
	out->used = number(CARD(d), "memory_used", 1073741824);
	out->free = out->total - out->used;
	return OK;
}

struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device d, struct memory_v2 *out)
{
	ENTER(d);
	out->total = number(CARD(d), "memory_total", 150754820096ULL);
	out->reserved = number(CARD(d), "memory_reserved", 600 << 20);
	out->used = number(CARD(d), "memory_used", 1073741824);
	out->free = out->total - out->reserved - out->used;
	return OK;
}

static unsigned of_clock(device d, unsigned type, const char *prefix, unsigned sm, unsigned memory)
{
	char key[LINE];
	snprintf(key, sizeof(key), "%s_%s", prefix, type == 2 ? "memory_clock" : "sm_clock");
	return number(CARD(d), key, type == 2 ? memory : sm);
}
int nvmlDeviceGetClockInfo(device d, unsigned type, unsigned *out) { ENTER(d); *out = of_clock(d, type, "now", 1980, 3201); return OK; }
int nvmlDeviceGetMaxClockInfo(device d, unsigned type, unsigned *out) { ENTER(d); *out = of_clock(d, type, "max", 1980, 3201); return OK; }
int nvmlDeviceGetApplicationsClock(device d, unsigned type, unsigned *out) { ENTER(d); *out = of_clock(d, type, "set", 1980, 3201); return OK; }
int nvmlDeviceGetDefaultApplicationsClock(device d, unsigned type, unsigned *out) { ENTER(d); *out = of_clock(d, type, "default", 1980, 3201); return OK; }

#define SIMPLE(function, key, otherwise) \
	int function(device d, unsigned *out) { ENTER(d); *out = number(CARD(d), key, otherwise); return OK; }
SIMPLE(nvmlDeviceGetPowerUsage, "power", 500000)
SIMPLE(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
SIMPLE(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default", 700000)
SIMPLE(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
SIMPLE(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
SIMPLE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
SIMPLE(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
SIMPLE(nvmlDeviceGetComputeMode, "compute_mode", 0)

int nvmlDeviceGetTemperature(device d, unsigned sensor, unsigned *out) { (void)sensor; ENTER(d); *out = number(CARD(d), "temperature", 60); return OK; }
struct temperature { unsigned version, sensor; int degrees; };
int nvmlDeviceGetTemperatureV(device d, struct temperature *out) { ENTER(d); out->degrees = number(CARD(d), "temperature", 60); return OK; }
int nvmlDeviceGetTemperatureThreshold(device d, unsigned which, unsigned *out) { (void)which; ENTER(d); *out = number(CARD(d), "slowdown", 90); return OK; }
int nvmlDeviceGetPcieThroughput(device d, unsigned counter, unsigned *out)
{
	ENTER(d);
	*out = number(CARD(d), counter ? "pcie_rx_kb" : "pcie_tx_kb", 1000);
	return OK;
}
int nvmlDeviceGetTotalEccErrors(device d, unsigned type, unsigned counter, u64 *out)
{
	char key[LINE];
	ENTER(d);
	snprintf(key, sizeof(key), "ecc_%s%s", type ? "uncorrected" : "corrected", counter ? "_ever" : "");
	*out = number(CARD(d), key, 0);
	return OK;
}
int nvmlDeviceGetRemappedRows(device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	ENTER(d);
	*corrected = number(CARD(d), "rows_corrected", 0);
	*uncorrected = number(CARD(d), "rows_uncorrected", 0);
	*pending = number(CARD(d), "remap_pending", 0);
	*failed = number(CARD(d), "remap_failed", 0);
	return OK;
}

struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device d, struct rates *out)
{
	ENTER(d);
	out->gpu = number(CARD(d), "gpu_percent", 90);
	out->memory = number(CARD(d), "memory_percent", 40);
	return OK;
}

/* Five samples of the last moments. */
struct sample { u64 at_us; union { double d; unsigned ui; u64 ull; } value; };
int nvmlDeviceGetSamples(device d, unsigned type, u64 since_us, unsigned *kind, unsigned *count, struct sample *out)
{
	unsigned wanted = 5;
	(void)type; (void)since_us;
	ENTER(d);
	*kind = 1;
	for (unsigned at = 0; out && at < wanted; at++) {
		out[at].at_us = now_us() - (u64)(wanted - at) * 1000;
		out[at].value.ui = number(CARD(d), "buffer_percent", number(CARD(d), "gpu_percent", 90));
	}
	*count = wanted;
	return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(device d, u64 *out) { ENTER(d); *out = number(CARD(d), "reasons", 0); return OK; }

struct violation { u64 reference_us, ns; };
int nvmlDeviceGetViolationStatus(device d, unsigned policy, struct violation *out)
{
	ENTER(d);
	out->reference_us = now_us();
	out->ns = number(CARD(d), policy ? "heat_capped_ns" : "power_capped_ns", 0);
	return OK;
}

struct field { unsigned id, scope; long long at, took; unsigned kind; int code; union { unsigned ui; u64 ull; } value; };
int nvmlDeviceGetFieldValues(device d, int count, struct field *fields)
{
	ENTER(d);
	for (int at = 0; at < count; at++) {
		fields[at].code = OK;
		fields[at].kind = 1;
		fields[at].value.ull = number(CARD(d), "memory_temperature", 70);
	}
	return OK;
}

struct user { int card; unsigned pid; u64 bytes; unsigned percent; };
static unsigned users(int card, struct user *found)
{
	char line[LINE];
	unsigned count = 0;
	FILE *file = state();
	struct user one;

	while (file && count < MOST && fgets(line, sizeof(line), file)) {
		one.card = card;
		if (sscanf(line, "process %u %llu %u", &one.pid, &one.bytes, &one.percent) == 3 ||
		    sscanf(line, "%d.process %u %llu %u", &one.card, &one.pid, &one.bytes, &one.percent) == 4)
			if (one.card == card)
				found[count++] = one;
	}
	if (file)
		fclose(file);
	return count;
}

struct process { unsigned pid; u64 bytes; unsigned instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *count, struct process *out)
{
	struct user found[MOST];
	unsigned room = *count;
	ENTER(d);
	*count = users(CARD(d), found);
	if (*count > room || (*count && !out))
		return TOO_SMALL;
	for (unsigned at = 0; at < *count; at++)
		out[at] = (struct process){found[at].pid, found[at].bytes, ~0u, ~0u};
	return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, unsigned *count, struct process *out)
{
	(void)out;
	ENTER(d);
	*count = 0;
	return OK;
}

struct process_share { unsigned pid; u64 at_us; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(device d, struct process_share *out, unsigned *count, u64 since_us)
{
	struct user found[MOST];
	unsigned room = *count;
	(void)since_us;
	ENTER(d);
	*count = users(CARD(d), found);
	if (!*count)
		return NOT_FOUND;
	if (*count > room || !out)
		return TOO_SMALL;
	for (unsigned at = 0; at < *count; at++)
		out[at] = (struct process_share){found[at].pid, now_us(), found[at].percent, 1, 0, 0};
	return OK;
}

int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *pending) { ENTER(d); *now = *pending = number(CARD(d), "mig", 0); return OK; }
