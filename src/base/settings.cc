#include "cgx/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>

#include "base/setting_forms.h"

namespace cgx {
namespace {

using namespace forms;

/// `alias` is another name of ours, or NCCL's variable for the same thing. Ours come first and are checked even where
/// another one decides; NCCL's counts only when none of ours is set, and a value that we cannot read there is NCCL's
/// business and ignored.
template <class T, class Form>
struct Param {
  const char* name;
  const char* alias;
  T Settings::*field;
  Form form;
  const char* help;
  std::size_t aliasUnit = 1;  // what 1 in the alias counts in the field's unit
};

template <class T, class Form>
Param(const char*, const char*, T Settings::*, Form, const char*) -> Param<T, Form>;
template <class T, class Form>
Param(const char*, const char*, T Settings::*, Form, const char*, int) -> Param<T, Form>;

/// A variable that is checked and otherwise without effect.
template <class Form>
struct Accepted {
  const char* name;
  Form form;
  const char* fixed;
  const char* help;
};

template <class Form>
Accepted(const char*, Form, const char*, const char*) -> Accepted<Form>;

constexpr double kDay = 86400;
constexpr std::size_t kMi = 1 << 20;
constexpr std::size_t kGi = 1 << 30;

constexpr Number<double> secondsOrOff(double low) {
  return {.low = low, .high = kDay, .zeroWord = "off", .unit = " seconds"};
}
constexpr Number<double> seconds(double low) { return {.low = low, .high = kDay, .unit = " seconds"}; }

// One line a setting: everything that reads, checks, prints or documents settings walks this table.
constexpr std::tuple kParams{
    Param{"CGX_MODE", nullptr, &Settings::mode,
          choice(Word{"auto", Mode::Auto}, Word{"always", Mode::Always}, Word{"off", Mode::Off}),
          "Which all-reduces are compressed. auto: those that it makes faster, by the tuner's cost model; always: all "
          "above CGX_MIN_BYTES; off: none, NCCL goes on without us."},
    Param{"CGX_COMMS", nullptr, &Settings::comms, choice(Word{"world", Comms::World}, Word{"all", Comms::All}),
          "Whose all-reduces. world: of communicators with as many ranks as the job (WORLD_SIZE, OMPI_COMM_WORLD_SIZE, "
          "PMI_SIZE or Slurm's), so that tensor-parallel and other groups stay exact; all: of all communicators."},
    Param{"CGX_BITS", "CGX_COMPRESSION_QUANTIZATION_BITS", &Settings::bits,
          Number<int>{.low = 1, .high = 8, .also = 32},
          "Bits that each element of an all-reduce travels as; 32: exact."},
    Param{"CGX_ROUNDING", nullptr, &Settings::rounding,
          choice(Word{"nearest", Rounding::Nearest}, Word{"stochastic", Rounding::Stochastic}),
          "Rounding to codes. Stochastic keeps the mean of small values, nearest has the smaller error."},
    Param{"CGX_MIN_BYTES", "CGX_COMPRESSION_MINIMAL_SIZE", &Settings::minBytes,
          Bytes{.high = 1024 * kGi, .zeroWord = "off"},
          "All-reduces with at most this much content travel exact. Above 32K it needs NCCL's tuner interface (2.21 "
          "and later). "
          "The alias counts elements, of 4 bytes each.",
          4},
    Accepted{"CGX_COMPRESSION_BUCKET_SIZE", Number<int>{.low = 1, .high = 1 << 30, .unit = " elements"}, "32",
             "Accepted for compatibility and without effect: the bucket is fixed at 32 elements."},
    Param{"CGX_SEED", nullptr, &Settings::seed, Number<std::uint64_t>{.low = 0, .high = UINT64_MAX},
          "Seed of the rounding noise; the same on all ranks."},
    Param{"CGX_SIMD", nullptr, &Settings::simd, words("auto", "scalar", "sse4", "avx2", "avx512", "neon"),
          "Instruction set of the codec; all give the same bytes."},
    Param{"CGX_THREADS", nullptr, &Settings::threads, Number<int>{.low = 1, .high = 64, .zeroWord = "auto"},
          "Codec threads of the process; auto: allowed CPUs / local ranks / 4, within 1..4."},
    Param{"CGX_STAGING", nullptr, &Settings::staging, Bytes{.low = kMi, .high = 64 * kGi},
          "Staging memory for each communicator, at most; larger operations stream through it."},
    Param{"CGX_BLOCK_ELEMENTS", nullptr, &Settings::blockElements,
          Number<std::size_t>{.low = 512, .high = std::size_t{1} << 28, .zeroWord = "auto"},
          "Elements in one message; auto: by staging and rank count."},
    Param{"CGX_ONE_PHASE_BYTES", nullptr, &Settings::onePhaseBytes, Bytes{.high = kGi, .zeroWord = "off"},
          "All-reduces of up to this size take one phase: less latency, more traffic."},
    Param{"CGX_MAX_RANKS", nullptr, &Settings::maxRanks, Number<int>{.low = 1, .high = 1024},
          "Communicators with more ranks are refused, on all ranks alike."},
    Param{"CGX_CONNECT_TIMEOUT", nullptr, &Settings::connectTimeout, seconds(0.1), "Limit for connecting to a peer."},
    Param{"CGX_PEER_TIMEOUT", nullptr, &Settings::peerTimeout, seconds(0.1), "How long a peer's host may be silent."},
    Param{"CGX_OP_TIMEOUT", nullptr, &Settings::opTimeout, secondsOrOff(0.1),
          "How long a peer that is alive may be late; off: it is waited for."},
    Param{"CGX_LATE_WARN", nullptr, &Settings::lateWarn, secondsOrOff(0.1),
          "How often a late peer is named in a warning."},
    Param{"CGX_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", &Settings::ifname, Interfaces{},
          "Interfaces to use; unset: all but lo, docker* and those with only link-local addresses."},
    Param{"CGX_SOCKET_FAMILY", "NCCL_SOCKET_FAMILY", &Settings::family, words("AF_INET", "AF_INET6"),
          "Address family; unset: any."},
    Param{"CGX_PORT_RANGE", nullptr, &Settings::portRange, PortRange{}, "Ports to listen on; unset: any free port."},
    Param{"CGX_STREAMS", nullptr, &Settings::streams, Number<int>{.low = 1, .high = 16, .zeroWord = "auto"},
          "TCP streams for each connection; auto: 2, or 1 above 16 peers."},
    Param{"CGX_PROGRESS_THREADS", nullptr, &Settings::progressThreads, Number<int>{.low = 1, .high = 16},
          "Threads that move bytes between sockets and memory."},
    Param{"CGX_AFFINITY", nullptr, &Settings::affinity,
          choice(Word{"near", Affinity::Near}, Word{"inherit", Affinity::Inherit}),
          "Where our threads run: on those allowed CPUs that are near the NIC, if they are enough for all ranks of the "
          "host; or on all allowed CPUs."},
    Param{"CGX_CHECKSUM", nullptr, &Settings::checksum, choice(Word{"0", false}, Word{"1", true}),
          "Checksum over every payload; a corrupted sum would make ranks diverge silently."},
    Param{"CGX_KEEPALIVE", nullptr, &Settings::keepalive, secondsOrOff(1), "Time between TCP keepalive probes."},
    Param{"CGX_LINK_SPEED", nullptr, &Settings::linkSpeedMbps,
          Number<int>{.low = 1, .high = 10'000'000, .zeroWord = "auto", .unit = " Mb/s"},
          "Speed that NCCL is told; auto: what the kernel reports."},
    Param{"CGX_INTRA", nullptr, &Settings::intra,
          choice(Word{"auto", Intra::Auto}, Word{"on", Intra::On}, Word{"off", Intra::Off}),
          "Compression between the processes of one host, unless its GPUs reach one another directly; auto: off until "
          "GPU memory is encoded in place."},
    Param{"CGX_GDR", nullptr, &Settings::gdr,
          choice(Word{"auto", Gdr::Auto}, Word{"on", Gdr::On}, Word{"off", Gdr::Off}),
          "GPU memory taken from NCCL without its copy to the host. Not built yet: on says so, auto is off."},
    Param{
        "CGX_STATS_FILE", nullptr, &Settings::statsFile, FilePattern{},
        "Where statistics are written when a communicator closes, at each CGX_STATS_INTERVAL, and when a file of that "
        "name with .request behind it appears. %h: host, %p: process id, %r: rank, %%: a percent sign."},
    Param{"CGX_STATS_INTERVAL", nullptr, &Settings::statsInterval, secondsOrOff(1),
          "How often statistics are logged and written while the job runs."},
    Param{"CGX_STATS_FORMAT", nullptr, &Settings::statsFormat,
          choice(Word{"json", StatsFormat::Json}, Word{"prometheus", StatsFormat::Prometheus}),
          "Form of the file: JSON, or text for the textfile collector of Prometheus's node_exporter."},
    Param{"CGX_ABORT_ON_ERROR", nullptr, &Settings::abortOnError, choice(Word{"0", false}, Word{"1", true}),
          "Abort the process on a communicator's first error, for launchers that only see exits."},
};

/// Names that start with CGX_ and belong to our tests and tools.
constexpr const char* kForeign[] = {"CGX_DOCTOR_LAUNCHER", "CGX_GRADIENTS", "CGX_NCCL_SRC"};

/// Where launchers say how many ranks share this host. Theirs, so anything but a count is ignored.
constexpr const char* kLocalRanks[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                       "SLURM_NTASKS_PER_NODE"};

/// And how many it has in all. srun's own word counts only inside a job step: an allocation's says what was asked for,
/// not what was started.
constexpr const char* kWorldRanks[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

/// And which of them this process is; Slurm's word is read beside these.
constexpr const char* kWorldRank[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

template <class Visit>
void forEachParam(Visit&& visit) {
  std::apply([&](const auto&... param) { (visit(param), ...); }, kParams);
}

/// As NCCL does, an empty variable counts as unset.
std::string_view textOf(const Lookup& lookup, const char* name) {
  const char* const text = name == nullptr ? nullptr : lookup(name);
  return text == nullptr ? std::string_view{} : std::string_view{text};
}

bool isOurs(const char* name) { return name != nullptr && std::string_view(name).starts_with("CGX_"); }

/// In quotes, so that blanks are seen; control characters and long texts cannot spoil a log.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 80;
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kMost ? "...\"" : "\"");
}

template <class T, class Form>
bool readAlias(const Param<T, Form>& param, std::string_view text, T& value) {
  if (!param.form.read(text, value)) return false;
  if constexpr (std::is_same_v<Form, Bytes>) {
    if (value > param.form.high / param.aliasUnit) return false;
    value *= param.aliasUnit;
  }
  return true;
}

/// Collects complaints, so that a user sees all of them at once.
class Reader {
 public:
  Reader(Settings& settings, const Lookup& lookup) : settings_(settings), lookup_(lookup) {}

  template <class T, class Form>
  void operator()(const Param<T, Form>& param) {
    const std::string_view own = textOf(lookup_, param.name);
    const std::string_view other = textOf(lookup_, param.alias);
    T value{};
    if (!other.empty()) {
      if (readAlias(param, other, value)) {
        settings_.*param.field = value;
      } else if (isOurs(param.alias)) {
        complain(param.alias, other, param.form.accepts(), param.aliasUnit);
      }
    }
    if (own.empty()) return;
    if (param.form.read(own, value)) {
      settings_.*param.field = std::move(value);
    } else {
      complain(param.name, own, param.form.accepts(), 1);
    }
  }

  template <class Form>
  void operator()(const Accepted<Form>& param) {
    int ignored = 0;
    const std::string_view own = textOf(lookup_, param.name);
    if (!own.empty() && !param.form.read(own, ignored)) complain(param.name, own, param.form.accepts(), 1);
  }

  Status status() && { return complaints_.empty() ? Status() : Status::invalid(std::move(complaints_)); }

 private:
  void complain(const char* name, std::string_view text, const std::string& accepts, std::size_t unit) {
    if (!complaints_.empty()) complaints_ += "; ";
    complaints_ += std::string(name) + "=" + quoted(text) + " is not accepted (accepted: " + accepts;
    if (unit != 1) complaints_ += ", divided by " + showNumber(unit);
    complaints_ += ")";
  }

  Settings& settings_;
  const Lookup& lookup_;
  std::string complaints_;
};

/// Number of single-character edits that turn one name into the other (Levenshtein), one row at a time.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t i = 0; i <= to.size(); ++i) row[i] = i;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t k = 1; k <= to.size(); ++k) {
      const std::size_t above = row[k];
      row[k] = std::min({above + 1, row[k - 1] + 1, diagonal + (from[i - 1] == to[k - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[to.size()];
}

std::vector<const char*> knownNames() {
  std::vector<const char*> names;
  const auto add = [&](const auto& param) {
    names.push_back(param.name);
    if constexpr (requires { param.alias; }) {
      if (isOurs(param.alias)) names.push_back(param.alias);
    }
  };
  forEachParam(add);
  return names;
}

std::string nearestSetting(std::string_view name) {
  const std::vector<const char*> names = knownNames();
  return *std::min_element(names.begin(), names.end(),
                           [&](const char* a, const char* b) { return distance(name, a) < distance(name, b); });
}

template <class T, class Form>
const char* originOf(const Param<T, Form>& param, const Lookup& lookup) {
  T ignored{};
  if (!textOf(lookup, param.name).empty()) return param.name;
  const std::string_view other = textOf(lookup, param.alias);
  return !other.empty() && readAlias(param, other, ignored) ? param.alias : "default";
}

/// The first of `names` that holds a count; 0: none does.
template <std::size_t kNames>
int ranksFrom(const char* const (&names)[kNames], const Lookup& lookup) {
  for (const char* name : names) {
    int ranks = 0;
    if (readNumber(textOf(lookup, name), ranks) && ranks > 0) return ranks;
  }
  return 0;
}

/// -1: nobody says.
int worldRankFrom(const Lookup& lookup) {
  int rank = 0;
  for (const char* name : kWorldRank) {
    if (readNumber(textOf(lookup, name), rank)) return rank;
  }
  const bool step = !textOf(lookup, "SLURM_STEP_ID").empty();
  return step && readNumber(textOf(lookup, "SLURM_PROCID"), rank) ? rank : -1;
}

int worldRanksFrom(const Lookup& lookup) {
  const int ranks = ranksFrom(kWorldRanks, lookup);
  if (ranks != 0 || textOf(lookup, "SLURM_STEP_ID").empty()) return ranks;
  return ranksFrom({"SLURM_NTASKS"}, lookup);
}

}  // namespace

Status load(Settings& out, const Lookup& lookup) {
  Settings fresh;
  Reader reader(fresh, lookup);
  forEachParam(reader);
  const int localRanks = ranksFrom(kLocalRanks, lookup);
  fresh.localRanksKnown = localRanks > 0;
  fresh.localRanks = std::max(1, localRanks);
  fresh.worldRanks = worldRanksFrom(lookup);
  fresh.worldRank = worldRankFrom(lookup);
  Status status = std::move(reader).status();
  if (status.ok()) out = std::move(fresh);
  return status;
}

std::vector<std::string> unknownSettings(const char* const* environment) {
  std::vector<std::string> unknown;
  const std::vector<const char*> known = knownNames();
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("CGX_")) continue;
    const auto same = [&](const char* other) { return name == other; };
    if (std::any_of(known.begin(), known.end(), same)) continue;
    if (std::any_of(std::begin(kForeign), std::end(kForeign), same)) continue;
    unknown.push_back(std::string(name) + " is no setting; the nearest is " + nearestSetting(name));
  }
  return unknown;
}

const char* environment(const char* name) noexcept { return std::getenv(name); }

Status loadEnvironment(Settings& out, std::vector<std::string>* unknown) {
  if (unknown != nullptr) *unknown = unknownSettings(environ);
  return load(out, environment);
}

std::vector<SettingRow> describe(const Settings& settings, const Lookup& lookup) {
  std::vector<SettingRow> rows;
  forEachParam([&](const auto& param) {
    if constexpr (requires { param.field; }) {
      rows.push_back({.name = param.name,
                      .alias = param.alias == nullptr ? "" : param.alias,
                      .accepts = param.form.accepts(),
                      .fallback = param.form.show(Settings().*param.field),
                      .value = param.form.show(settings.*param.field),
                      .origin = originOf(param, lookup),
                      .help = param.help});
    } else {
      rows.push_back({.name = param.name,
                      .alias = "",
                      .accepts = param.form.accepts(),
                      .fallback = param.fixed,
                      .value = param.fixed,
                      .origin = "fixed",
                      .help = param.help});
    }
  });
  return rows;
}

std::string settingsMarkdown() {
  std::string text = "| variable | accepts | default | what for |\n|---|---|---|---|\n";
  for (const SettingRow& row : describe(Settings(), [](const char*) -> const char* { return nullptr; })) {
    text += "| `" + row.name + "`" + (row.alias.empty() ? "" : "<br>`" + row.alias + "`") + " | " + row.accepts +
            " | " + row.fallback + " | " + row.help + " |\n";
  }
  return text;
}

}  // namespace cgx
