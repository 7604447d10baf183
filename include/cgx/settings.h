// Every setting once: name, type, default, what it accepts, what it is for. The README table is printed from here.
// Only src/base/settings.cc reads the environment; everybody else gets a const Settings&.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cgx/status.h"

namespace cgx {

enum class Rounding : std::uint8_t { Nearest, Stochastic };
/// Off: no compression and no steering. Auto: the tuner's cost model decides. Always: whatever is above minBytes.
enum class Mode : std::uint8_t { Off, Auto, Always };
/// Whose all-reduces may be compressed: those of the job's whole communicator, or of every one.
enum class Comms : std::uint8_t { World, All };
enum class Intra : std::uint8_t { Auto, On, Off };
enum class Affinity : std::uint8_t { Near, Inherit };
enum class Gdr : std::uint8_t { Auto, On, Off };
enum class StatsFormat : std::uint8_t { Json, Prometheus };

/// A Settings{} holds the documented defaults.
struct Settings {
  // what is compressed
  Mode mode = Mode::Auto;
  Comms comms = Comms::World;
  // codec
  int bits = 4;                              // 1-8, or 32: exact
  Rounding rounding = Rounding::Stochastic;  // unbiased: small gradients next to large ones keep their mean
  std::size_t minBytes = 32 << 10;           // operations whose content is at most this travel exact
  std::uint64_t seed = 0;                    // of the rounding noise
  std::string simd = "auto";                 // auto, or the name of one target
  // collective
  int threads = 0;                       // workers; 0: clamp(allowed CPUs / local ranks / 4, 1, 4)
  std::size_t staging = 64 << 20;        // bytes of staging for each communicator, at most
  std::size_t blockElements = 0;         // elements in one message; 0: chosen from staging and rank count
  std::size_t onePhaseBytes = 64 << 10;  // up to this many bytes an all-reduce takes one phase
  int maxRanks = 64;
  // time limits, in seconds
  double connectTimeout = 60;
  double peerTimeout = 30;  // a silent host
  double opTimeout = 0;     // a late peer; 0: wait for ever
  double lateWarn = 60;     // how often a late peer is named
  // socket
  std::string ifname;     // NCCL_SOCKET_IFNAME's grammar; empty: that variable, else by default rules
  std::string family;     // "", AF_INET or AF_INET6
  std::string portRange;  // "first-last"; empty: any free port
  int streams = 0;        // TCP streams per connection; 0: 2, or 1 above 16 peers
  int progressThreads = 1;
  Affinity affinity = Affinity::Near;  // of all our threads
  bool checksum = true;
  double keepalive = 30;      // seconds between TCP keepalive probes
  int linkSpeedMbps = 0;      // 0: what the kernel says
  bool abortOnError = false;  // abort the process on the first communicator error
  // what NCCL is told (activation.h)
  Intra intra = Intra::Auto;  // compress between the processes of a host; auto: off, as there are host pointers only
  Gdr gdr = Gdr::Auto;        // GPU memory without a copy to the host; auto: off, as it is not built yet
  // statistics
  std::string statsFile;     // absolute, with %h host, %p process id, %r rank, %%; empty: none
  double statsInterval = 0;  // seconds; 0: at the end only, and when asked
  StatsFormat statsFormat = StatsFormat::Json;
  // not settings of ours: what the launcher says
  int localRanks = 1;            // ranks of this job on this host
  bool localRanksKnown = false;  // false: nobody said, 1 is a guess
  int worldRanks = 0;            // ranks of the job; 0: unknown
  int worldRank = -1;            // of this process among them; -1: unknown
  // nor this: what topology.h found, if `affinity` wants it
  std::vector<int> nearCpus;  // ascending; empty: the NICs are as near to one CPU as to another
};

/// One row for `cgx info` and the README.
struct SettingRow {
  std::string name;      // CGX_BITS
  std::string alias;     // CGX_COMPRESSION_QUANTIZATION_BITS, or empty
  std::string accepts;   // "1..8, 32"
  std::string fallback;  // the default, as a user would write it
  std::string value;     // in force
  std::string origin;    // "default", or the variable that set it
  std::string help;
};

/// One variable of the process environment, for the few that are not settings of ours (NCCL_NET_PLUGIN); nullptr when
/// unset.
const char* environment(const char* name) noexcept;

/// Looks a variable up; nullptr when unset. Tests pass a lambda, the library getenv.
using Lookup = std::function<const char*(const char* name)>;

/// All or nothing: an error leaves `out` as it was. An error names each bad variable, its value and what is accepted.
/// Text is taken strictly: no blanks, no trailing text, in range. An empty variable counts as unset, as in NCCL. A
/// short name wins over its alias. NCCL's own variables are fallbacks; what we cannot read there is ignored.
Status load(Settings& out, const Lookup& lookup);
/// From the process environment; unknown CGX_* variables are described in `unknown`, each with the nearest known name.
Status loadEnvironment(Settings& out, std::vector<std::string>* unknown);
/// The table with the values `settings` has and where `lookup` says they came from.
std::vector<SettingRow> describe(const Settings& settings, const Lookup& lookup);
/// A sentence for each CGX_* variable in `environment` ("NAME=value", nullptr last) that no setting has.
std::vector<std::string> unknownSettings(const char* const* environment);
/// The table of the README: every setting with what it accepts, its default and its purpose.
std::string settingsMarkdown();

}  // namespace cgx
