#include "placement.h"

#include <charconv>
#include <cstdint>
#include <string_view>

namespace cgx::tool {
namespace {

// Below the range that Linux takes for outgoing connections (32768 up), above what services use.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 12000;

struct Environment {
  const Lookup& lookup;

  std::string text(const char* name) const {
    const char* value = lookup(name);
    return value == nullptr ? std::string() : std::string(value);
  }
  bool has(const char* name) const { return lookup(name) != nullptr; }
  Status number(const char* name, int* out) const {
    const std::string value = text(name);
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), *out);
    if (error == std::errc{} && stop == value.data() + value.size()) return {};
    return Status::invalid(std::string(name) + "=\"" + value + "\" is not a number");
  }
};

/// A port that all ranks of a job compute alike without having met.
int portOf(std::string_view job) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return kFirstPort + static_cast<int>(hash % kPorts);
}

Status fromTorchrun(const Environment& env, Placement* out) {
  out->origin = "torchrun";
  CGX_TRY(env.number("RANK", &out->rank));
  CGX_TRY(env.number("WORLD_SIZE", &out->ranks));
  out->host = env.text("MASTER_ADDR");
  CGX_TRY(env.number("MASTER_PORT", &out->port));
  // Then torchrun's agent itself listens on MASTER_PORT.
  if (env.text("TORCHELASTIC_USE_AGENT_STORE") == "True") out->port = out->port < 65535 ? out->port + 1 : out->port - 1;
  return {};
}

Status fromMpi(const Environment& env, long localId, Placement* out) {
  const bool openMpi = env.has("OMPI_COMM_WORLD_RANK");
  out->origin = "mpirun";
  CGX_TRY(env.number(openMpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK", &out->rank));
  CGX_TRY(env.number(openMpi ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE", &out->ranks));
  const char* localSize = openMpi ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS";
  int local = 0;
  if (env.has(localSize)) CGX_TRY(env.number(localSize, &local));
  if (local == out->ranks || out->ranks == 1) {
    out->host = "127.0.0.1";
    out->port = portOf("local " + std::to_string(localId));
  } else if (env.has("MASTER_ADDR")) {
    out->host = env.text("MASTER_ADDR");
    if (env.has("MASTER_PORT")) CGX_TRY(env.number("MASTER_PORT", &out->port));
  }
  return {};
}

Status fromSlurm(const Environment& env, Placement* out) {
  out->origin = "srun";
  CGX_TRY(env.number("SLURM_PROCID", &out->rank));
  CGX_TRY(env.number("SLURM_NTASKS", &out->ranks));
  // Rank 0 runs on the step's first node; the launching node is a guess for steps that do not tell.
  out->host = firstHost(env.text("SLURM_STEP_NODELIST"));
  if (out->host.empty()) out->host = env.text("SLURM_LAUNCH_NODE_IPADDR");
  out->port = portOf("slurm " + env.text("SLURM_JOB_ID") + "." + env.text("SLURM_STEP_ID"));
  return {};
}

}  // namespace

std::string firstHost(const std::string& nodeList) {
  const std::size_t bracket = nodeList.find('[');
  const std::size_t comma = nodeList.find(',');
  if (bracket == std::string::npos || comma < bracket) return nodeList.substr(0, comma);
  const std::size_t stop = nodeList.find_first_of("-,]", bracket);
  return nodeList.substr(0, bracket) +
         nodeList.substr(bracket + 1, stop == std::string::npos ? stop : stop - bracket - 1);
}

Status parseRoot(const std::string& text, std::string* host, int* port) {
  const std::size_t colon = text.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : text.substr(colon + 1);
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *port);
  *host = text.substr(0, colon);
  if (host->size() > 2 && host->front() == '[' && host->back() == ']') *host = host->substr(1, host->size() - 2);
  if (error == std::errc{} && stop == digits.data() + digits.size() && *port > 0 && *port < 65536 && !host->empty())
    return {};
  return Status::invalid("--root \"" + text + "\" is not host:port");
}

Result<Placement> placementFromFlags(int rank, int ranks, const std::string& root, int rootFd) {
  Placement placement;
  placement.origin = rootFd >= 0 ? "local" : "flags";
  if (rank < 0 || ranks < 1 || root.empty()) return Status::invalid("--rank, --nranks and --root go together");
  if (rank >= ranks)
    return Status::invalid("--rank " + std::to_string(rank) + " does not exist among --nranks " +
                           std::to_string(ranks));
  placement.rank = rank;
  placement.ranks = ranks;
  placement.listenFd = rootFd;
  CGX_TRY(parseRoot(root, &placement.host, &placement.port));
  return placement;
}

Result<std::optional<Placement>> placementFromLauncher(const Lookup& lookup, const std::string& root, long localId) {
  const Environment env{lookup};
  Placement placement;
  Status status;
  // torchrun first: it may itself run under srun, then RANK is what counts.
  if (env.has("RANK") && env.has("WORLD_SIZE") && env.has("MASTER_ADDR") && env.has("MASTER_PORT"))
    status = fromTorchrun(env, &placement);
  else if (env.has("OMPI_COMM_WORLD_RANK") || (env.has("PMI_RANK") && env.has("PMI_SIZE")))
    status = fromMpi(env, localId, &placement);
  else if (env.has("SLURM_PROCID") && env.has("SLURM_NTASKS"))
    status = fromSlurm(env, &placement);
  else
    return std::optional<Placement>();
  if (!status.ok()) return std::move(status).within(placement.origin);
  if (!root.empty()) CGX_TRY(parseRoot(root, &placement.host, &placement.port));
  if (placement.host.empty() || placement.port == 0)
    return Status::invalid(placement.origin + " does not tell where rank 0 runs; add --root host:port");
  if (placement.rank < 0 || placement.rank >= placement.ranks)
    return Status::invalid(placement.origin + " gives rank " + std::to_string(placement.rank) + " of " +
                           std::to_string(placement.ranks));
  return std::optional<Placement>(std::move(placement));
}

}  // namespace cgx::tool
