"""Flags of XLA for programs that run each compiled step a few times."""

# By default LLVM optimizes, and generates the code of fused operations by way of MLIR. A training
# step then takes three times as long to compile.
FAST_COMPILATION = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
