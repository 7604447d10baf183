// Times of an all-reduce by size and way (bench/ways.h), ranks as processes of this host, or one in each of the network
// namespaces PREFIX0, PREFIX1, ... One JSON line for each size: microseconds of the slowest rank, median of the rounds.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "bench/ways.h"
#include "cgx/tuner.h"

namespace {

using namespace cgx::host;

struct Options {
  std::string library;
  std::string way = "collnet";
  std::string type = "fp32";
  std::string netns;
  std::vector<std::string> settings;
  std::vector<std::size_t> sizes{1 << 20};
  std::size_t chunk = 0;
  bool tuned = false;
  int ranks = 2;
  int channels = 2;
  int rounds = 9;
};

constexpr double kWait = 120;

bool enterNamespace(const std::string& name) {
  const int fd = ::open(("/var/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0;
  if (fd >= 0) ::close(fd);
  return entered;
}

/// Microseconds on the slowest rank; 0: it failed.
double once(Rank& rank, cgx::bench::Way& way, std::span<std::byte> data) {
  if (!rank.barrier(1, rank.everyone(), kWait)) return 0;
  const auto start = Clock::now();
  if (!way.run(data)) return 0;
  const double us = Seconds(Clock::now() - start).count() * 1e6;
  std::vector<double> all(static_cast<std::size_t>(rank.ranks()));
  if (!rank.allGather(1, rank.everyone(), std::as_bytes(std::span(&us, 1)), std::as_writable_bytes(std::span(all)),
                      kWait))
    return 0;
  return *std::max_element(all.begin(), all.end());
}

cgx::bench::ChunkRule chunkRule(const Options& options) {
  if (options.chunk > 0) return [chunk = options.chunk](std::size_t, int) { return chunk; };
  if (!options.tuned) return cgx::bench::ncclsChunk;
  const cgx::tuner::Group group{static_cast<std::size_t>(options.ranks), static_cast<std::size_t>(options.ranks)};
  return [group](std::size_t bytes, int channels) {
    return cgx::tuner::chunkBytesFor(group, bytes, channels, cgx::bench::ncclsChunk(bytes, channels));
  };
}

void measure(const Options& options, Rank& rank) {
  if (!options.netns.empty() && !enterNamespace(options.netns + std::to_string(rank.rank())))
    return rank.report(Violation::HostFailed, "cannot enter the network namespace");
  auto way = options.way == "ring" ? cgx::bench::ring(options.channels)
                                   : cgx::bench::collnet(options.channels, chunkRule(options),
                                                         options.type == "fp32" ? ncclFloat32 : ncclFloat16);
  if (!way->open(rank)) return;
  for (const std::size_t bytes : options.sizes) {
    std::vector<std::byte> data(bytes);
    std::vector<double> times;
    for (int i = 0; i < options.rounds + 2; ++i) {
      fillInput(options.type == "fp32" ? ncclFloat32 : ncclFloat16, Fill::Normal, 1, rank.rank(), 0, data);
      const double us = once(rank, *way, data);
      if (us == 0) return;
      if (i >= 2) times.push_back(us);  // the first ones see their memory for the first time
    }
    std::nth_element(times.begin(), times.begin() + options.rounds / 2, times.end());
    if (rank.rank() == 0) rank.note(std::to_string(bytes), std::to_string(times[times.size() / 2]));
  }
  (void)rank.barrier(1, rank.everyone(), kWait);
}

int run(const Options& options) {
  RunOptions how;
  how.plugin = options.library;
  how.ranks = options.ranks;
  how.audit = false;
  how.limits.runSeconds = 600;
  how.environment = {{"NCCL_SOCKET_IFNAME", options.netns.empty() ? "lo" : "eth0"}, {"CGX_COMMS", "all"}};
  for (const std::string& setting : options.settings) {
    const std::size_t equals = setting.find('=');
    how.environment.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  const Verdict verdict = cgx::host::run(how, [&](Rank& rank) { measure(options, rank); });
  for (const std::size_t bytes : options.sizes) {
    const auto found = verdict.notes.find(std::to_string(bytes));
    if (found == verdict.notes.end()) continue;
    std::printf("{\"way\": \"%s\", \"bytes\": %zu, \"us\": %s}\n", options.way.c_str(), bytes,
                found->second.at(0).c_str());
  }
  if (!verdict.clean()) std::fprintf(stderr, "%s\n", verdict.text().c_str());
  return verdict.clean() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times of an all-reduce as NCCL drives it");
  app.add_option("library", options.library, "libnccl-net-cgx.so")->required();
  app.add_option("--way", options.way)->check(CLI::IsMember({"ring", "collnet"}));
  app.add_option("--sizes", options.sizes, "bytes")->delimiter(',');
  app.add_option("--ranks", options.ranks);
  app.add_option("--channels", options.channels);
  app.add_option("--chunk", options.chunk, "bytes a channel; 0: as NCCL chooses it");
  app.add_flag("--tuned", options.tuned, "chunks as our tuner chooses them (tuner ABI v6)");
  app.add_option("--dtype", options.type)->check(CLI::IsMember({"fp32", "fp16"}));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--netns", options.netns, "prefix of the ranks' network namespaces");
  app.add_option("--set", options.settings, "NAME=VALUE for the ranks' environment");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
