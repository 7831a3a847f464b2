"""What only a real card can show: overhead on real training jobs, and the truth of what is said of them.

    tools/gpu_bundle.sh            everything the target needs, in one archive
    python -m benchmarks.gpu.run   there; results are files

Nothing here is needed by the product, and nothing here runs without a card.
"""
