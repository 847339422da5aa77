"""The environment variables that PyTorch reads only once, when it is imported.

Ranks are forked from a process that has imported PyTorch, so that process needs the values that a script sets before
its `import torch`. Variables that PyTorch reads later need no such care, because each rank has its own environment:
CUDA_VISIBLE_DEVICES, CUBLAS_WORKSPACE_CONFIG and those of NCCL, for example.

`tests/training/test_variables.py` compares this list with the variables that the installed PyTorch reads.
"""

from fnmatch import fnmatchcase
from functools import cache

TORCH, DYNAMO = "torch", "torch._dynamo"

READ_BY: dict[str, tuple[str, ...]] = {
    TORCH: (
        # libgomp and LLVM's libomp read their variables when they are loaded; so do OpenBLAS (in NumPy) and MKL.
        *("OMP_*", "GOMP_*", "KMP_*", "OPENBLAS_*", "GOTO_NUM_THREADS", "MKL_*"),
        *("MKLDNN_*", "ONEDNN_*", "DNNL_*"),  # oneDNN, in libtorch_cpu
        *("NPY_*", "NUMPY_*"),  # numpy/__init__.py and numpy/_core
        "TQDM_*",  # tqdm/utils.py, envwrap; torch.hub imports tqdm
        *("TORCH_LOGS*", "TORCH_TRACE", "TORCH_DTRACE"),  # torch/_logging/_internal.py
        *("PYTORCH_JIT*",),  # torch/jit/_state.py and _trace.py
        # c10/core/AllocatorConfig.h; read by the backend at import
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        *("TORCH_CPP_LOG_LEVEL", "TORCH_SHOW_CPP_STACKTRACES", "TORCH_CUSTOM_TERMINATE"),  # c10/util
        *("PYTORCH_API_USAGE_STDERR", "KINETO_USE_DAEMON"),  # c10/util/Logging.cpp; torch/profiler/__init__.py
        "TORCH_DISTRIBUTED_DEBUG",  # torch/distributed/__init__.py, set_debug_level_from_env
        "TORCH_DISTRIBUTED_USE_TORCHCOMMS",  # torch/distributed/config.py; so are the next two
        *("TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK", "TORCH_DISTRIBUTED_PIPELINE_PER_EDGE_P2P"),
        *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_BLAS_PREFER_*", "TORCH_LINALG_PREFER_*"),  # ATen/Context.h
        *("TORCH_ROCM_FA_PREFER_CK", "TORCH_SYMMMEM"),
        *("TORCH_USE_RTLD_GLOBAL", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_CUDA_SANITIZER"),  # torch/__init__.py
        *("TORCH_DISABLE_NATIVE_*", "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN", "PYTORCH_SUM_INNER_TREE"),  # _native
        *("TORCH_FAKE_TENSOR_DEBUG", "TORCH_ENRICH_RPOFILER_STACK_TRACE"),  # _subclasses/fake_tensor.py; fx
        *("FX_*", "PYTORCH_MATCHER_LOGLEVEL", "TORCHEXPORT_*", "COMPILE_STROBELIGHT_*"),  # torch/fx, _strobelight
    ),
    # DistributedDataParallel and the first optimizer import torch._dynamo, but `import torch` does not.
    DYNAMO: (
        *("TORCHDYNAMO_*", "TORCHINDUCTOR_*", "TORCH_COMPILE*"),  # the config.py of _dynamo, _inductor, _functorch
        *("TORCH_DYNAMO_*", "TORCH_CACHING_PRECOMPILE", "TORCH_STRICT_PRECOMPILE", "TORCH_CUDAGRAPH_GC"),
        *("TORCH_FAKE_TENSOR_DISPATCH_CACHE*", "AOT_*", "AOTINDUCTOR_*", "INDUCTOR_*", "PARTITIONER_MEMORY_*"),
        *("CUTEDSL_ENABLE_AUTOTUNING", "FLYDSL_ENABLE_AUTOTUNING", "CUTLASS_EPILOGUE_FUSION", "ENABLE_*TMA*"),
        *("LOG_AUTOTUNE_RESULTS", "LOG_TLPARSE", "PT2_COMPILE_ID_PREFIX", "UNSAFE_SKIP_FSDP_MODULE_GUARDS", "CXX"),
        *("DUMP_AOTI_MINIFIER", "FAKE_ALLOW_META", "ENABLE_TEMPLATE_AUTOWS"),
        *("SYMPY_*", "MPMATH_*"),  # sympy/core/cache.py; mpmath/libmp/backend.py
        *("HOME",),  # triton/knobs.py: the cache's default directory
        *("TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_BACKENDS_IN_TREE"),  # libtriton; triton/backends/__init__.py
        *("TRITON_ENABLE_PYTHON_STACKTRACE", "TRITON_INSTRUMENTATION_MODE", "PTXAS_OPTIONS"),
    ),
}
"""The variables that each module reads at its import, for the modules that are imported before the ranks are forked.
`*` stands for any characters. The comments name the files that read the variables."""

READ_AGAIN = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""Variables that match a pattern above, but are read whenever they are needed."""


@cache
def reader_of(variable: str) -> str | None:
    """The first module that reads a variable at its import; None if no module that all ranks import does so."""
    if variable in READ_AGAIN:
        return None
    return next((name for name, patterns in READ_BY.items() if any(fnmatchcase(variable, p) for p in patterns)), None)
