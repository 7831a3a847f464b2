"""Jobs with one real cause each. A function draws one; the numbers vary with the seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from benchmarks.truth.outside import around
from benchmarks.truth.outside.job import Job, Source, kinds

Draw = Callable[[Random], Job]

PICTURES = "image_classifier/train.py"
LANGUAGE = "lm/pretrain.py"
API = "serving/api.py"
ONLINE = "recsys/online.py"
DETECTION = "detection/train.py"
SAMPLER = "diffusion/sample.py"
SPEECH = "speech/finetune.py"
GRAPH = "gnn/train.py"
RANKS = "ddp/train.py"
CHAT = "chat/engine.py"
ACTORS = "rl/actor_learner.py"

UNNAMED = "slowdown gpu-idle"  # for what no kind of its own is promised


def pictures(rng: Random, **more: object) -> dict[str, object]:
    """Its step is about half work on the host."""
    return {
        "batch": 4,
        "prefetch": True,
        "mix_rounds": rng.randint(40, 60),
        "layers": rng.randint(6, 10),
        "layer_us": rng.randint(900, 1300),
        "log_every": 10,
    } | more


def backup_next_door(rng: Random) -> Job:
    return Job(
        "backup-next-door",
        PICTURES,
        pictures(rng),
        amid=None,
        around=(around.Commands("exec xz -6 -T1 -c < /dev/urandom > /dev/null", rng.choice((6, 8))),),
        cause="a backup compresses on all cores and takes them from the job",
        right=kinds("cpu-contention noisy-neighbour"),
        wrong=kinds("cpu-throttled data-starvation gil-contention"),
        culprits=("xz",),
    )


def lowered_priority(rng: Random) -> Job:
    return Job(
        "lowered-priority",
        PICTURES,
        pictures(rng, mix_rounds=rng.randint(50, 70)),
        around=(
            around.Commands("exec gzip -6 -c < /dev/urandom > /dev/null", 2, nice=5, always=True),
            around.Renice(rng.randint(14, 19)),
        ),
        cause="the job's priority was lowered below that of compressing neighbours that were harmless before",
        right=kinds("cpu-contention noisy-neighbour"),
        wrong=kinds("cpu-throttled data-starvation gil-contention"),
        culprits=("gzip",),
    )


def container_quota(rng: Random) -> Job:
    return Job(
        "container-quota",
        PICTURES,
        pictures(rng, mix_rounds=rng.randint(140, 180)),
        around=(around.Quota(rng.uniform(0.28, 0.38)),),
        cause="a CPU limit on the job's cgroup stops it for a part of each period",
        right=kinds("cpu-throttled"),
        wrong=kinds("cpu-contention noisy-neighbour periodic-spike"),
    )


def decode_inline(rng: Random) -> Job:
    return Job(
        "decode-inline",
        PICTURES,
        pictures(rng, batch=8, mix_rounds=1),
        {"inline_decode": True},
        cause="pictures are decoded in the thread that feeds the device, no longer ahead of it",
        right=kinds("data-starvation"),
        tolerable=kinds(UNNAMED),
        wrong=kinds("cpu-contention disk-wait gil-contention launch-bound"),
        sources=(
            Source("image_classifier/dataset.py", "raw = zlib.decompress"),
            Source("image_classifier/dataset.py", "scaled = picture.astype"),
            Source("image_classifier/dataset.py", "return (scaled"),
            Source("image_classifier/dataset.py", "return np.stack"),
            Source("image_classifier/train.py", "batch = pictures.batch"),
        ),
    )


def language(rng: Random, **more: object) -> dict[str, object]:
    return {
        "vocabulary": 32_000,
        "sequence": 1024,
        "accumulate": rng.choice((2, 4)),
        "layers": rng.randint(8, 14),
        "layer_us": rng.randint(700, 1100),
        "sync_every": 1,
    } | more


def cycles_collected(rng: Random) -> Job:
    return Job(
        "cycles-collected",
        LANGUAGE,
        language(rng, graph_nodes=rng.randint(15_000, 30_000)),
        {"collect": True},
        cause="each step collects garbage in a large graph of objects",
        right=kinds("gc-pause"),
        tolerable=kinds(UNNAMED),
        wrong=kinds("data-starvation cpu-contention"),
        sources=(Source(LANGUAGE, "gc.collect()"),),
    )


def chatty_console(rng: Random) -> Job:
    return Job(
        "chatty-console",
        LANGUAGE,
        language(rng, print_rows=200),
        {"ship_s": rng.uniform(0.04, 0.06)},
        around=(around.Shipper("logship"),),
        cause="what the job prints goes into a pipe whose reader has become slow: printing blocks",
        right=kinds("slow-peer slowdown gpu-idle"),
        wrong=kinds("disk-wait data-starvation cpu-contention"),
        culprits=("logship",),
        sources=(
            Source("lm/telemetry.py", "sys.stdout.write"),
            Source("lm/telemetry.py", "sys.stdout.flush"),
        ),
    )


def tensor_dump(rng: Random) -> Job:
    return Job(
        "tensor-dump",
        LANGUAGE,
        language(rng, accumulate=2),
        {"dump_tensors": rng.randint(3000, 4500)},
        cause="debug output: statistics of all tensors as JSON in each step, in the main thread",
        right=kinds(UNNAMED),
        tolerable=kinds("data-starvation"),
        wrong=kinds("disk-wait cpu-contention gil-contention launch-bound"),
        sources=(
            Source(LANGUAGE, "json.dumps(telemetry.tensors"),
            Source("lm/telemetry.py", "for number in range(count)"),
            Source("lm/telemetry.py", 'f"layer.{number}"'),
        ),
    )


def program_each_step(rng: Random) -> Job:
    return Job(
        "program-each-step",
        LANGUAGE,
        language(rng, accumulate=1, layers=rng.randint(6, 9)),
        {"stamp_revision": True},
        cause="each step starts another program and waits for its end",
        right=kinds(UNNAMED + " slow-peer"),
        tolerable=kinds("data-starvation cpu-contention"),
        wrong=kinds("disk-wait gil-contention memory-pressure"),
        culprits=("git",),
        sources=(Source(LANGUAGE, "said = subprocess.run"),),
    )


def api(rng: Random, **more: object) -> dict[str, object]:
    return {
        "max_batch": 4,
        "layers": rng.randint(5, 9),
        "layer_us": rng.randint(800, 1400),
        "prefill_us": 500,
        "report_every_s": 0.02,
        "users": 4,
        "tokens": 1,
        "think_s": 0,
    } | more


def statistics_lock(rng: Random) -> Job:
    return Job(
        "statistics-lock",
        API,
        api(rng),
        {"push_under_lock_s": rng.uniform(0.03, 0.06)},
        around=(around.Client(),),
        cause="a thread holds the lock of the statistics while it pushes them; who serves waits for it",
        right=kinds(UNNAMED),
        tolerable=kinds("head-of-line"),
        wrong=kinds("gil-contention slow-peer cpu-contention"),
        sources=(
            Source("serving/batcher.py", "with statistics.lock"),
            Source("serving/statistics.py", "time.sleep(seconds)"),
        ),
    )


def long_documents(rng: Random) -> Job:
    return Job(
        "long-documents",
        API,
        api(rng),
        {"document_tokens": rng.randint(25, 45)},
        around=(around.Client(),),
        cause="one user's long documents stand in the queue before the short requests of all others",
        right=kinds("head-of-line"),
        tolerable=kinds("slowdown periodic-spike"),
        wrong=kinds("gpu-shared slow-peer cpu-contention"),
    )


def histogram_thread(rng: Random) -> Job:
    return Job(
        "histogram-thread",
        API,
        api(rng, layers=5),
        {"histogram_rounds": 300_000, "report_every_s": 0.001},
        around=(around.Client(),),
        cause="a thread computes in Python and holds the interpreter; those that serve wait for it",
        right=kinds("gil-contention"),
        tolerable=kinds("slowdown"),
        wrong=kinds("cpu-contention slow-peer data-starvation noisy-neighbour"),
        sources=(
            Source("serving/statistics.py", "if number & 1023"),
            Source("serving/statistics.py", "for exponent in range(50)"),
            Source("serving/statistics.py", "buckets[exponent] += 1"),
        ),
    )


def online(rng: Random, **more: object) -> dict[str, object]:
    return {"rows": 200, "layers": rng.randint(5, 9), "layer_us": rng.randint(900, 1600)} | more


def store_compacts(rng: Random) -> Job:
    return Job(
        "store-compacts",
        ONLINE,
        online(rng),
        {"compaction_s": rng.uniform(0.008, 0.02)},
        around=(around.Peer("featstore", "tcp", "store"),),
        cause="the feature store answers late",
        right=kinds("slow-peer"),
        tolerable=kinds(UNNAMED),
        culprits=("featstore",),
        wrong=kinds("network-retransmits data-starvation disk-wait"),
        sources=(Source("recsys/features.py", "return self._file.read"),),
    )


def heavy_scorer(rng: Random) -> Job:
    return Job(
        "heavy-scorer",
        ONLINE,
        online(rng, rows=300),
        {"ensemble": rng.randint(60, 90)},
        around=(around.Peer("scorer", "http", "scorer"),),
        cause="an HTTP service that each step asks computes for long before it answers",
        right=kinds("slow-peer"),
        tolerable=kinds(UNNAMED),
        culprits=("scorer",),
        wrong=kinds("network-retransmits cpu-contention disk-wait"),
        sources=(Source("recsys/features.py", "return json.loads(self._connection"),),
    )


def name_server_away(rng: Random) -> Job:
    return Job(
        "name-server-away",
        ONLINE,
        online(rng),
        {"names_away": True},
        around=(around.Peer("nameserv", "udp", "name_servers"),),
        cause="the name servers do not answer any more; each look-up waits for both time-outs",
        right=kinds("slow-peer " + UNNAMED),
        wrong=kinds("network-retransmits cpu-contention disk-wait"),
        culprits=("nameserv",),
        sources=(Source("recsys/features.py", "return asking.recv"),),
    )


def collector_refuses(rng: Random) -> Job:
    return Job(
        "collector-refuses",
        ONLINE,
        online(rng),
        {"metrics_away": True},
        around=(around.Peer("metricsd", "metrics", "metrics_port", blamed=False),),
        cause="a metrics collector refuses connections; the step tries thrice and sleeps between",
        right=kinds(UNNAMED),
        tolerable=kinds("slow-peer"),
        wrong=kinds("network-retransmits data-starvation cpu-contention"),
        sources=(Source("recsys/features.py", "time.sleep(pause_s)"),),
    )


def lossy_wire(rng: Random) -> Job:
    return Job(
        "lossy-wire",
        ONLINE,
        online(rng, rows=400),
        {},
        around=(around.Wire(rng.randint(60, 110)),),
        cause="packets to the feature store are lost",
        right=kinds("network-retransmits"),
        tolerable=kinds("slow-peer"),
        wrong=kinds("disk-wait data-starvation"),
        sources=(Source("recsys/features.py", "return self._file.read"),),
    )


def detection(rng: Random, **more: object) -> dict[str, object]:
    return {
        "workers": 2,
        "passes": 20,
        "batch": rng.choice((4, 8)),
        "boxes": 24,
        "layers": rng.randint(8, 12),
        "layer_us": rng.randint(1500, 2200),
    } | more


def richer_augmentation(rng: Random) -> Job:
    return Job(
        "richer-augmentation",
        DETECTION,
        detection(rng),
        {"passes": rng.randint(1500, 2000)},
        cause="the worker processes spend much longer on each sample",
        right=kinds("data-starvation"),
        tolerable=kinds(UNNAMED + " slow-peer"),
        wrong=kinds("disk-wait cpu-contention noisy-neighbour"),
        sources=(
            Source("detection/loader.py", "picture = np.roll"),
            Source("detection/loader.py", "return self._ready.get()"),
            Source("detection/train.py", "batch = [loader.next()"),
        ),
    )


def worker_lost(rng: Random) -> Job:
    return Job(
        "worker-lost",
        DETECTION,
        detection(rng, batch=8, layers=10, layer_us=rng.randint(3000, 3300), passes=rng.randint(800, 900)),
        {"workers_left": 1},
        cause="one of two workers ended with an error; the other cannot keep up",
        right=kinds("data-starvation"),
        tolerable=kinds(UNNAMED + " slow-peer"),
        wrong=kinds("disk-wait cpu-contention"),
        sources=(
            Source("detection/loader.py", "picture = np.roll"),
            Source("detection/loader.py", "return self._ready.get()"),
            Source("detection/train.py", "batch = [loader.next()"),
        ),
    )


def slow_volume(rng: Random) -> Job:
    return Job(
        "slow-volume",
        DETECTION,
        detection(rng),
        {},
        around=(around.Disk(data_mb=300, read_mb_s=rng.uniform(30, 45)),),
        cause="the volume with the samples reads slowly",
        right=kinds("disk-wait data-starvation"),
        tolerable=kinds(UNNAMED),
        wrong=kinds("cpu-contention memory-pressure gil-contention"),
        sources=(
            Source("detection/loader.py", "raw = file.read(SAMPLE)"),
            Source("detection/loader.py", "return self._ready.get()"),
            Source("detection/train.py", "batch = [loader.next()"),
        ),
    )


def too_many_threads(rng: Random) -> Job:
    return Job(
        "too-many-threads",
        DETECTION,
        detection(rng, passes=60, boxes=rng.randint(300, 400), layer_us=900),
        {"checksum_threads": rng.choice((6, 8, 10))},
        cause="the job itself starts many computing threads and has too few cores for them",
        right=kinds("cpu-contention"),
        tolerable=kinds("data-starvation gil-contention"),
        wrong=kinds("noisy-neighbour cpu-throttled disk-wait"),
        sources=(Source("detection/loader.py", "digest.update"),),
    )


def sampler(rng: Random, **more: object) -> dict[str, object]:
    return {
        "iterations": rng.randint(3, 6),
        "blocks": 12,
        "block_us": rng.randint(250, 400),
        "graphs": False,
    } | more


def graph_captured_again(rng: Random) -> Job:
    return Job(
        "graph-captured-again",
        SAMPLER,
        sampler(rng, graphs=True, blocks=rng.randint(300, 450), block_us=9),
        {"shapes": 1},
        stub={"INGERO_STUB_CALL_NS": "5000"},
        cause="the graph is captured and instantiated again before each launch",
        right=kinds("graph-trouble"),
        tolerable=kinds("launch-bound " + UNNAMED),
        wrong=kinds("sync-heavy copy-bound"),
        sources=(
            Source(SAMPLER, "self._graph = self._captured()"),
            Source(SAMPLER, "runtime.cudaStreamBeginCapture"),
            Source(SAMPLER, 'self._network(self._run["blocks"], self._run["block_us"], False)'),
            Source(SAMPLER, "self._device.launch(us, self._stream, block)"),
            Source("torchlet.py", "self.runtime.launch(self._names"),
        ),
    )


def crumbs(rng: Random) -> Job:
    pieces = rng.randint(450, 650)
    return Job(
        "crumbs",
        SAMPLER,
        sampler(rng, blocks=12, block_us=400),
        {"blocks": pieces, "block_us": 8},
        stub={"INGERO_STUB_CALL_NS": "6000"},
        cause="the network is launched as hundreds of tiny kernels instead of a few fused ones",
        right=kinds("launch-bound"),
        tolerable=kinds("slowdown gpu-idle"),
        wrong=kinds("sync-heavy copy-bound underutilised"),
        sources=(
            Source(SAMPLER, "self._device.launch(us, self._stream, block)"),
            Source("torchlet.py", "self.runtime.launch(self._names"),
        ),
    )


def strict_mode(rng: Random) -> Job:
    return Job(
        "strict-mode",
        SAMPLER,
        sampler(rng, blocks=rng.randint(50, 80), block_us=60),
        {"strict": True},
        cause="after each kernel the device is waited for",
        right=kinds("sync-heavy"),
        tolerable=kinds("launch-bound"),
        wrong=kinds("copy-bound gpu-shared"),
        sources=(
            Source(SAMPLER, "self._device.synchronize(self._stream)  #"),
            Source("torchlet.py", "self.runtime.cudaStreamSynchronize(stream)"),
        ),
    )


def ragged_shapes(rng: Random) -> Job:
    return Job(
        "ragged-shapes",
        SAMPLER,
        sampler(rng, blocks=12, block_us=300),
        {"ragged": rng.choice((1, 2))},
        stub={"INGERO_STUB_LOAD_MS": str(rng.randint(12, 25))},
        cause="inputs of ever new shapes: kernels are compiled and loaded again and again",
        right=kinds("cold-start " + UNNAMED),
        tolerable=kinds("periodic-spike"),
        wrong=kinds("launch-bound sync-heavy data-starvation"),
        sources=(Source(SAMPLER, "self._driver.cuModuleLoadData"),),
    )


def speech(rng: Random, **more: object) -> dict[str, object]:
    return {
        "wave_mb": rng.choice((24, 32, 48)),
        "layers": rng.randint(6, 10),
        "layer_us": rng.randint(900, 1500),
        "pin": True,
    } | more


def pinning_off(rng: Random) -> Job:
    return Job(
        "pinning-off",
        SPEECH,
        speech(rng),
        {"pin": False},
        cause="the batches are copied from pageable memory",
        right=kinds("copy-bound"),
        tolerable=kinds(UNNAMED),
        wrong=kinds("sync-heavy data-starvation memory-pressure"),
        sources=(
            Source("torchlet.py", "self.runtime.cudaMemcpyAsync(to.address"),
            Source(SPEECH, "self._device.upload(self._waves"),
        ),
    )


def activations_to_host(rng: Random) -> Job:
    return Job(
        "activations-to-host",
        SPEECH,
        speech(rng),
        {"log_mb": rng.choice((32, 48))},
        cause="each step copies activations to the host, for a histogram",
        right=kinds("copy-bound"),
        tolerable=kinds("sync-heavy " + UNNAMED),
        wrong=kinds("data-starvation disk-wait"),
        sources=(
            Source("torchlet.py", "self.runtime.cudaMemcpyAsync(_address(host), source.address"),
            Source(SPEECH, "self._device.download(self._pageable"),
        ),
    )


def scratch_each_step(rng: Random) -> Job:
    return Job(
        "scratch-each-step",
        SPEECH,
        speech(rng, wave_mb=8),
        {"scratch_blocks": rng.randint(14, 24)},
        stub={"INGERO_STUB_ALLOC_US": "250"},
        cause="device memory is allocated and freed in each step",
        right=kinds("alloc-churn"),
        tolerable=kinds("sync-heavy " + UNNAMED),
        wrong=kinds("copy-bound gpu-memory-leak"),
        sources=(
            Source("speech/buffers.py", "taken = [self._device.empty"),
            Source("torchlet.py", "self.address = device.runtime.malloc"),
            Source("torchlet.py", "self._device.runtime.cudaFree(self.address)"),
        ),
    )


def kept_activations(rng: Random) -> Job:
    return Job(
        "kept-activations",
        SPEECH,
        speech(rng, wave_mb=8),
        {"keep_mb": rng.choice((4, 5))},
        amid=True,
        stub={"INGERO_STUB_ALLOC_US": "400", "INGERO_STUB_MEMORY": "4G"},
        cause="each step keeps device memory for ever; when it is full, the cache is given back each step",
        right=kinds("gpu-memory-leak cuda-oom"),
        tolerable=kinds("alloc-churn"),
        wrong=kinds("copy-bound sync-heavy"),
        sources=(
            Source("speech/buffers.py", "self._kept.append"),
            Source("speech/buffers.py", "self._pool = [self._device.empty(64 << 20) for"),
            Source("torchlet.py", "self.address = device.runtime.malloc"),
        ),
    )


def beam_too_wide(rng: Random) -> Job:
    return Job(
        "beam-too-wide",
        SPEECH,
        speech(rng, wave_mb=8),
        {"beam_gb": rng.choice((6, 7))},
        stub={"INGERO_STUB_ALLOC_US": "200", "INGERO_STUB_MEMORY": "6G"},
        cause="a request for more device memory than there is fails in each step; it is done again in parts",
        right=kinds("cuda-oom"),
        tolerable=kinds("alloc-churn cuda-error"),
        wrong=kinds("gpu-memory-leak copy-bound"),
        sources=(
            Source(SPEECH, "wide = self._device.empty"),
            Source("torchlet.py", "self.address = device.runtime.malloc"),
        ),
    )


def graph(rng: Random, **more: object) -> dict[str, object]:
    return {"hops": rng.randint(4, 7), "hop_us": rng.randint(1500, 3000)} | more


def saved_too_often(rng: Random) -> Job:
    return Job(
        "saved-too-often",
        GRAPH,
        graph(rng, save_mb=12, save_every=40),
        {"save_every": rng.choice((5, 8))},
        around=(around.Disk(state=True, write_mb_s=rng.uniform(40, 60)),),
        cause="the state is written to a slow volume every few steps, and the step waits until it is there",
        right=kinds("disk-wait"),
        tolerable=kinds("periodic-spike"),
        wrong=kinds("data-starvation memory-pressure"),
        sources=(
            Source("gnn/storage.py", "os.fsync(file.fileno())"),
            Source("gnn/storage.py", "file.write(self._state)"),
        ),
    )


def durable_journal(rng: Random) -> Job:
    return Job(
        "durable-journal",
        GRAPH,
        graph(rng, journal=True),
        {"durable": True},
        around=(around.Disk(state=True, write_iops=rng.randint(60, 120)),),
        cause="a line is forced to a slow volume in each step",
        right=kinds("disk-wait"),
        tolerable=kinds(UNNAMED),
        wrong=kinds("data-starvation memory-pressure periodic-spike"),
        sources=(Source("gnn/storage.py", "os.fsync(self._file.fileno())"),),
    )


def cold_pages(rng: Random) -> Job:
    return Job(
        "cold-pages",
        GRAPH,
        graph(rng, nodes=rng.randint(30, 45), spread=400),
        {"spread": 1},
        around=(around.Disk(data_mb=700, setting="features", read_iops=rng.randint(1000, 1600)),),
        cause="features in a mapped file are not in memory: each touch reads a page of a slow volume",
        right=kinds("disk-wait memory-pressure"),
        tolerable=kinds("data-starvation " + UNNAMED),
        wrong=kinds("cpu-contention gil-contention slow-peer"),
        sources=(Source("gnn/storage.py", "total += self._pages"),),
    )


def cache_squeezed(rng: Random) -> Job:
    return Job(
        "cache-squeezed",
        GRAPH,
        graph(rng, sweep_mb=8, hop_us=1200),
        {},
        around=(
            around.MemoryLimit(rng.randint(70, 90)),
            around.Disk(data_mb=160, setting="features", read_mb_s=400),
        ),
        cause="a memory limit leaves no room for the file that was cached: it is reclaimed and read again",
        right=kinds("memory-pressure disk-wait"),
        tolerable=kinds("data-starvation"),
        wrong=kinds("cpu-contention gil-contention slow-peer"),
        sources=(Source("gnn/storage.py", "total += len(os.pread"),),
    )


def ranks(rng: Random, **more: object) -> dict[str, object]:
    return {
        "ranks": 3,
        "samples": 2,
        "layers": rng.randint(6, 9),
        "layer_us": rng.randint(2500, 4000),
        "floats": 4 << 20,
    } | more


def heavy_shard(rng: Random) -> Job:
    rank = rng.randint(0, 2)
    return Job(
        "heavy-shard",
        RANKS,
        ranks(rng),
        {"heavy_rank": rank, "heavy_times": rng.randint(40, 70)},
        around=(around.Devices(3), around.RankBlamed(rank)),
        cause="one rank has many more samples to decode; the others wait for it in the collective",
        right=kinds("nccl-straggler collective-imbalance"),
        tolerable=kinds("data-starvation slowdown"),
        wrong=kinds("nccl-hang network-retransmits cpu-contention"),
        sources=(Source("ddp/rank.py", "zlib.decompress(self._packed)"),),
    )


def longer_sequences(rng: Random) -> Job:
    rank = rng.randint(0, 2)
    return Job(
        "longer-sequences",
        RANKS,
        ranks(rng),
        {"long_rank": rank, "long_times": rng.uniform(1.5, 1.9)},
        around=(around.Devices(3), around.RankBlamed(rank)),
        cause="one rank's batches are longer and keep its device busy longer",
        right=kinds("nccl-straggler collective-imbalance"),
        tolerable=kinds("slowdown"),
        wrong=kinds("nccl-hang network-retransmits data-starvation cpu-contention"),
    )


def rank_reads_afar(rng: Random) -> Job:
    rank = rng.randint(0, 2)
    return Job(
        "rank-reads-afar",
        RANKS,
        ranks(rng),
        {"archive_rank": rank, "compaction_s": rng.uniform(0.012, 0.025)},
        around=(around.Devices(3), around.Peer("archived", "tcp", "archive"), around.RankBlamed(rank)),
        cause="one rank asks a slow archive in each step; the others wait for it in the collective",
        right=kinds("nccl-straggler slow-peer"),
        tolerable=kinds("collective-imbalance data-starvation"),
        wrong=kinds("nccl-hang cpu-contention disk-wait"),
        culprits=("archived", "python"),
        sources=(Source("ddp/rank.py", "self._archive.recv"),),
    )


def rank_stuck(rng: Random) -> Job:
    rank = rng.randint(0, 2)
    return Job(
        "rank-stuck",
        RANKS,
        ranks(rng),
        {"save_rank": rank},
        around=(around.Devices(3), around.RankBlamed(rank)),
        cause="one rank stands still in a lock it holds itself; the others wait in the collective for ever",
        right=kinds("nccl-hang"),
        tolerable=kinds("nccl-straggler"),
        wrong=kinds("network-retransmits cpu-contention"),
        sources=(Source("ddp/rank.py", "never.acquire()"),),
        amid=True,
    )


def chat(rng: Random, **more: object) -> dict[str, object]:
    return {
        "sessions": 6,
        "max_batch": 8,
        "layers": rng.randint(6, 10),
        "layer_us": rng.randint(600, 1000),
        "poll_s": 0.001,
        "answer_tokens": 20,
        "think_s": 0.0,
    } | more


def blocking_audit(rng: Random) -> Job:
    return Job(
        "blocking-audit",
        CHAT,
        chat(rng),
        {"audit_s": rng.uniform(0.02, 0.04)},
        cause="a coroutine sleeps without giving the event loop away: nobody's tokens are made meanwhile",
        right=kinds(UNNAMED),
        tolerable=kinds("head-of-line periodic-spike"),
        wrong=kinds("gil-contention slow-peer disk-wait"),
        sources=(Source("chat/sessions.py", "time.sleep(seconds)"),),
    )


def progress_watched(rng: Random) -> Job:
    return Job(
        "progress-watched",
        CHAT,
        chat(rng, layer_us=250, layers=rng.randint(12, 16)),
        {"watch": True},
        cause="a thread asks the device without a pause whether it is through, and takes the interpreter",
        right=kinds("gil-contention"),
        tolerable=kinds("sync-heavy " + UNNAMED),
        wrong=kinds("noisy-neighbour slow-peer data-starvation"),
        sources=(
            Source("chat/engine.py", "while not self._device.done(event):"),
            Source("torchlet.py", 'return self.runtime.try_call("cudaEventQuery"'),
        ),
    )


def notebook_on_the_card(rng: Random) -> Job:
    return Job(
        "notebook-on-the-card",
        SPEECH,
        speech(rng),
        {},
        around=(around.SecondJob("jupyter-kernel"),),
        cause="a second program computes on the same device",
        right=kinds("gpu-shared"),
        tolerable=kinds("slowdown"),
        wrong=kinds("cpu-contention sync-heavy copy-bound"),
        culprits=("jupyter-kernel",),
    )


def spilling_replay(rng: Random) -> Job:
    return Job(
        "spilling-replay",
        ACTORS,
        {
            "actors": 2,
            "batch": 64,
            "layers": rng.randint(6, 9),
            "layer_us": rng.randint(900, 1400),
            "policy_us": 300,
            "actor_rest_s": 0.004,
        },
        {"tidy_s": rng.uniform(0.012, 0.02)},
        cause="actors hold the lock of the replay buffer while they spill; the learner waits for the lock",
        right=kinds(UNNAMED),
        tolerable=kinds("data-starvation"),
        wrong=kinds("gil-contention slow-peer disk-wait"),
        sources=(
            Source("rl/replay.py", "return random.choices"),
            Source("rl/actor_learner.py", 'batch = replay.sample(run["batch"])'),
            Source("rl/replay.py", "time.sleep(seconds)"),
        ),
    )


ALL: tuple[Draw, ...] = (
    backup_next_door,
    decode_inline,
    cycles_collected,
    statistics_lock,
    store_compacts,
    richer_augmentation,
    strict_mode,
    pinning_off,
    saved_too_often,
    heavy_shard,
    blocking_audit,
    notebook_on_the_card,
    container_quota,
    chatty_console,
    long_documents,
    heavy_scorer,
    worker_lost,
    crumbs,
    activations_to_host,
    durable_journal,
    longer_sequences,
    spilling_replay,
    lowered_priority,
    tensor_dump,
    histogram_thread,
    name_server_away,
    slow_volume,
    graph_captured_again,
    scratch_each_step,
    cold_pages,
    rank_reads_afar,
    progress_watched,
    program_each_step,
    collector_refuses,
    too_many_threads,
    ragged_shapes,
    kept_activations,
    cache_squeezed,
    rank_stuck,
    lossy_wire,
    beam_too_wide,
)
