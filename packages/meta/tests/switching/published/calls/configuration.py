import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config

N = 3
torch._dynamo.config.suppress_errors = True
torch._dynamo.config.cache_size_limit = 16
torch._dynamo.config.accumulated_cache_size_limit = 128
torch._dynamo.config.optimize_ddp = False
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch._dynamo.config.automatic_dynamic_shapes = True
torch._dynamo.config.assume_static_by_default = True
torch._dynamo.config.compiled_autograd = False
torch._dynamo.config.verbose = False
torch._dynamo.config.guard_nn_modules = True
torch._dynamo.config.specialize_int = False
torch._dynamo.config.force_parameter_static_shapes = False
torch._dynamo.config.allow_unspec_int_on_nn_module = True
torch._dynamo.config.recompile_limit = 32
torch._dynamo.config.numpy_default_float = "float32"
torch._inductor.config.triton.unique_kernel_names = True
torch._inductor.config.triton.cudagraph_trees = False
torch._inductor.config.fx_graph_cache = True
torch._inductor.config.coordinate_descent_check_all_directions = True
torch._inductor.config.force_fuse_int_mm_with_mul = True
torch._inductor.config.cpp.threads = 1
torch._inductor.config.cpp_wrapper = False
torch._inductor.config.freezing = False
torch._inductor.config.max_autotune_gemm_backends = "ATEN,TRITON"
torch._inductor.config.compile_threads = 4
torch._inductor.config.reorder_for_compute_comm_overlap = False
torch._inductor.config.post_grad_custom_post_pass = None
torch._inductor.config.joint_custom_pre_pass = None
torch._functorch.config.activation_memory_budget = 0.5
torch.compiler.config.force_disable_caches = False
torch._functorch.config.donated_buffer = False
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
torch._logging.set_logs(recompiles=True, graph_breaks=True)


def build():
    @torch.compile
    def f(x):
        return x[: x[0].abs().long().item() % 3 + 1].sum() + x.nonzero().shape[0]

    with torch._dynamo.config.patch(cache_size_limit=4, suppress_errors=False):
        g = torch.compile(lambda x: x * 2)

    @torch._inductor.config.patch(max_autotune=False)
    def h(x):
        return torch.compile(torch.sin)(x)

    @torch._dynamo.disable
    def log(x):
        return float(x)

    @torch.compile
    def k(x):
        y = x * 2
        z = log(y.sum())
        return y + z

    torch._dynamo.reset()
    import torch._dynamo.utils as du

    def step():
        x = torch.randn(8)
        r = [f(x), g(x), h(x), k(x)]
        du.counters.clear()
        du.counters["stats"]["unique_graphs"]
        return r

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
