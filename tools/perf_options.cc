#include "perf_options.h"

#include <sstream>

namespace cgx::tool {
namespace {

constexpr const char* kFooter = R"(
Where ranks come from, first match wins: --ranks N starts N local ranks; --rank, --nranks and --root start one rank of many;
torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; the port after it where torchrun's agent holds it), mpirun (OMPI_COMM_WORLD_*
or PMI_*) and srun (SLURM_PROCID, SLURM_NTASKS) start one rank a process; otherwise 4 local ranks.

Columns: time is the mean of the iterations on the slowest rank; algbw = bytes / time; busbw = algbw x 2(n-1)/n, as in nccl-tests.
wire is what the busiest rank handed to the transport in one iteration, headers included. ratio = wire of the same input in exact
mode / wire: every row runs once with CGX_BITS=32 before the table starts. nmse is against the exact fp64 sum of the inputs as
converted to the type. identical: hashes of the results from all processes are equal.

Exit status: 0 good; 1 when ranks differ or an element breaks the error bound of the mode; 2 when it could not be run.)";

}  // namespace

void addPerfFlags(CLI::App& command, PerfOptions* options) {
  PerfOptions& o = *options;
  command.footer(kFooter);
  command.add_option("--ranks", o.ranks, "Local ranks to start, a process each")->check(CLI::Range(1, 1024));
  command.add_option("--rank", o.rank, "This process is one rank of --nranks")->check(CLI::Range(0, 1 << 20));
  command.add_option("--nranks", o.nranks, "How many ranks there are")->check(CLI::Range(1, 1 << 20));
  command.add_option("--root", o.root, "host:port where rank 0 waits for the others")->type_name("HOST:PORT");
  command.add_option("--root-fd", o.rootFd)
      ->group("");  // from our own launcher: the listening socket, bound before anybody dials
  auto* gradients =
      command.add_option("--gradients", o.gradients,
                         "Directory of rank<k>.npy files, searched recursively: a row for each set; may be repeated");
  gradients->type_name("DIR");
  command.add_option("--sizes", o.sizes, "Synthetic gradients: 1K:256M:x2, 1M:8M:+1M or 64K,1M")
      ->excludes(gradients)
      ->type_name("SIZES");
  command.add_option("--dtype", o.dtype, "fp32, fp16 or bf16; inputs are converted (default: type of the files, fp32)")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
  auto* bits = command.add_option("--bits", o.bits, "Sets CGX_BITS for the ranks: 1 to 8, or 32 for exact");
  bits->check(CLI::Range(1, 8) | CLI::IsMember({32}));
  command.add_option("--rounding", o.rounding, "Sets CGX_ROUNDING for the ranks")
      ->check(CLI::IsMember({"nearest", "stochastic"}));
  command.add_flag("--exact", o.exact, "Exact mode, the same as --bits 32")->excludes(bits);
  command.add_option("--iters", o.iters, "Timed iterations a row")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command.add_option("--warmup", o.warmup, "Iterations before them")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command.add_option("--timeout", o.timeoutSeconds, "Seconds to wait for ranks to come")->capture_default_str();
  command.add_option("--json", o.json, "Also write the results to this file")->type_name("FILE");
  command.add_option("--plugin", o.plugin, "Plugin to drive (default: libnccl-net-cgx.so next to this program)")
      ->type_name("PATH");
  command.add_flag("--verbose", o.verbose, "Show everything that the plugin logs");
}

const codec::DType* dtypeByName(const std::string& name) {
  static constexpr codec::DType kTypes[] = {codec::DType::F32, codec::DType::F16, codec::DType::BF16};
  if (name == "fp32") return &kTypes[0];
  if (name == "fp16") return &kTypes[1];
  if (name == "bf16") return &kTypes[2];
  return nullptr;
}

std::string agreementOf(const PerfOptions& o) {
  std::ostringstream text;
  for (const std::string& directory : o.gradients) text << "--gradients " << directory << " ";
  if (!o.sizes.empty()) text << "--sizes " << o.sizes << " ";
  if (!o.dtype.empty()) text << "--dtype " << o.dtype << " ";
  text << "--iters " << o.iters << " --warmup " << o.warmup << (o.exact || o.bits == 32 ? " --exact" : "");
  return text.str();
}

}  // namespace cgx::tool
