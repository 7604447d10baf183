#include "cgx/activation.h"

#include <sys/stat.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace cgx::activation {
namespace {

constexpr const char* kCollnet = "NCCL_COLLNET_ENABLE";
constexpr const char* kRefCount = "NCCL_NET_PLUGIN_REF_COUNT";
constexpr const char* kHostId = "NCCL_HOSTID";
constexpr const char* kGdrLevel = "NCCL_NET_GDR_LEVEL";
constexpr std::array kDecided{kCollnet, kRefCount, kHostId, kGdrLevel};

// Marks our ids, so that a child does not take the one that it inherits for its user's.
constexpr std::string_view kOwnHostId = "cgx:";

/// torchrun, Open MPI, Intel MPI and MPICH, MVAPICH, Slurm, PALS, Flux.
constexpr std::array kLocalRank{"LOCAL_RANK",        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                "PMI_LOCAL_RANK",    "MV2_COMM_WORLD_LOCAL_RANK",  "SLURM_LOCALID",
                                "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"};

void wantHostId(const Facts& facts, Decision& decision) {
  if (facts.intra != Intra::On) return;
  const std::optional<std::string> users = usersValue(kHostId, facts.lookup);
  const std::optional<int> rank = localRank(facts.lookup);
  if (!rank) {
    if (users) return;  // somebody gives out ids already
    decision.warnings.push_back(
        "CGX_INTRA=on has no effect: no launcher tells which of this host's processes this is (LOCAL_RANK, "
        "OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID), and the GPUs of one process are one node to NCCL; start one "
        "process "
        "for each GPU");
    return;
  }
  const Box box = facts.box ? facts.box() : Box{};
  if (box.gpus > 1 && (box.nvlink || box.p2p || !box.known)) {
    decision.warnings.push_back("CGX_INTRA=on has no effect: " +
                                std::string(box.nvlink ? "the GPUs of this host are linked by NVLink, which is faster"
                                            : box.p2p
                                                ? "the GPUs of this host reach one another directly, which is faster"
                                                : "without libnvidia-ml.so.1 nobody can say whether the GPUs of "
                                                  "this host are linked by NVLink"));
    return;
  }
  decision.wanted.push_back({kHostId, std::string(kOwnHostId) + facts.host + ":" + std::to_string(*rank),
                             "makes each process of a host a node, so that its traffic is compressed", users});
}

void wantDevicePointers(const Facts& facts, Decision& decision) {
  if (facts.gdr == Gdr::Off) return;
  if (facts.devicePointers) {
    decision.wanted.push_back({kGdrLevel, "SYS", "lets NCCL hand over GPU memory whatever lies between GPU and NIC",
                               usersValue(kGdrLevel, facts.lookup)});
  } else if (facts.gdr == Gdr::On) {
    decision.warnings.emplace_back(
        "CGX_GDR=on has no effect: this build encodes host memory only, so NCCL copies between GPU and host");
  }
}

bool sameFile(const std::string& a, const std::string& b) {
  struct stat x {};
  struct stat y {};
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool meansUs(const std::string& word, const std::string& libraryPath) {
  const std::size_t slash = word.rfind('/');
  const std::string base = slash == std::string::npos ? word : word.substr(slash + 1);
  if (base == "libnccl-net-cgx.so" || base == "libnccl-tuner-cgx.so") return true;
  if (slash == std::string::npos) return word == "cgx";
  return sameFile(word, libraryPath);
}

/// Whether `accept` takes any word of the list.
template <class Accept>
bool anyOf(std::string_view rest, const Accept& accept) {
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (accept(std::string(rest.substr(0, comma)))) return true;
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace

Way wayOf(NcclVersion nccl) noexcept {
  if (!nccl.known()) return Way::Unknown;
  if (nccl < NcclVersion{2, 27, 0}) return Way::FromInit;
  return nccl < NcclVersion{2, 28, 7} ? Way::ByHand : Way::EnvPlugin;
}

bool forgetsThePlugin(NcclVersion nccl) noexcept {
  return !nccl.known() || (nccl >= NcclVersion{2, 28, 3} && nccl <= NcclVersion{2, 29, 7});
}

bool takesAPath(NcclVersion nccl) noexcept {
  const bool wordsOnly =
      nccl < NcclVersion{2, 21, 0} || (nccl >= NcclVersion{2, 27, 0} && nccl < NcclVersion{2, 27, 5});
  return nccl.known() && !wordsOnly;
}

const Wanted* Decision::find(const std::string& name) const {
  for (const Wanted& one : wanted)
    if (name == one.name) return &one;
  return nullptr;
}

Decision decide(const Facts& facts) {
  Decision decision;
  decision.way = wayOf(facts.nccl);
  // Asked for as a tuner beside another plugin's net, we carry nothing and must not steer what that one carries.
  const char* const net = facts.lookup("NCCL_NET_PLUGIN");
  const bool netIsOpen = net == nullptr || *net == '\0';
  decision.named =
      namesUs(net, facts.libraryPath) || (netIsOpen && namesUs(facts.lookup("NCCL_TUNER_PLUGIN"), facts.libraryPath));
  if (!decision.named) return decision;
  decision.wanted.push_back({kCollnet, "1", "lets NCCL use collnet plugins", usersValue(kCollnet, facts.lookup)});
  if (forgetsThePlugin(facts.nccl))
    decision.wanted.push_back({kRefCount, "1", "keeps the plugin when the last communicator is destroyed",
                               usersValue(kRefCount, facts.lookup)});
  wantHostId(facts, decision);
  wantDevicePointers(facts, decision);
  return decision;
}

std::optional<std::string> usersValue(const char* name, const Lookup& lookup) {
  const char* value = lookup(name);
  if (value == nullptr) return std::nullopt;
  if (std::strcmp(name, kHostId) == 0 && std::string_view(value).starts_with(kOwnHostId)) return std::nullopt;
  return value;
}

bool collnetOn(const std::string& value, NcclVersion nccl) noexcept {
  if (wayOf(nccl) == Way::FromInit) return value == "1";
  return std::strtol(value.c_str(), nullptr, 0) > 0;
}

bool mayDecide(const char* name) noexcept {
  for (const char* one : kDecided)
    if (std::strcmp(name, one) == 0) return true;
  return false;
}

bool inTimeFromInit(const char* name, NcclVersion nccl) noexcept {
  if (std::strcmp(name, kCollnet) == 0) return wayOf(nccl) == Way::FromInit;
  return std::strcmp(name, kRefCount) != 0;  // read when NCCL lists its plugins, before it loads one
}

std::string remedy(NcclVersion nccl, const std::string& libraryPath) {
  const std::string byHand =
      "start the program with `cgx run --` in front, or set NCCL_COLLNET_ENABLE=1 in the job's environment or in "
      "/etc/nccl.conf";
  if (wayOf(nccl) != Way::EnvPlugin) return byHand;
  return byHand +
         ", or let NCCL find libnccl-env.so, which `make install` makes beside the plugin, on the loader's path, "
         "or set NCCL_ENV_PLUGIN=" +
         libraryPath;
}

bool namesUs(const char* value, const std::string& libraryPath) {
  return value != nullptr && anyOf(value, [&](const std::string& word) { return meansUs(word, libraryPath); });
}

bool understood(const char* value, const std::string& libraryPath, NcclVersion nccl) {
  if (value == nullptr) return false;
  if (!nccl.known()) return namesUs(value, libraryPath);
  if (nccl < NcclVersion{2, 21, 0}) return std::strcmp(value, "cgx") == 0;
  if (nccl < NcclVersion{2, 27, 0}) return std::strchr(value, ',') == nullptr && meansUs(value, libraryPath);
  return anyOf(value, [&](const std::string& word) {
    return meansUs(word, libraryPath) && (takesAPath(nccl) || word.find('/') == std::string::npos);
  });
}

std::optional<int> localRank(const Lookup& lookup) {
  for (const char* name : kLocalRank) {
    const char* value = lookup(name);
    if (value == nullptr) continue;
    const char* const end = value + std::strlen(value);
    int rank = -1;
    const auto [stop, error] = std::from_chars(value, end, rank);
    if (error == std::errc() && stop == end && rank >= 0) return rank;
  }
  return std::nullopt;
}

}  // namespace cgx::activation
