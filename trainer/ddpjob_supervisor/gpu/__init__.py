"""GPUs: the failures that NCCL and CUDA report, and the state of the hardware. Nothing here imports torch."""
