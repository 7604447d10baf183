// How long an all-reduce takes by the number of NCCL's channels and the size of their chunks, which make the calls that
// we get: channels x chunk bytes each, up to 8 at a time. The stand-in drives the library as NCCL's proxy does; its
// copies to and from staging stand for the GPU's. chunk_bench LIBRARY RANKS BYTES [ROUNDS]. CGX_* variables count.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "support/nccl_host/coll_op.h"

namespace {

using namespace cgx::host;

/// Microseconds of the quickest of `rounds` on the slowest rank; 0: it failed.
double quickest(const RunOptions& options, int channels, std::size_t chunkBytes, std::size_t bytes, int rounds) {
  const Verdict verdict = run(options, [&](Rank& rank) {
    CommOptions comm;
    comm.channels = channels;
    comm.buffBytes = std::size_t{4} << 20;  // NCCL's default
    comm.chunkBytes = chunkBytes;
    CollComm c(rank, comm);
    if (!c.setUp()) return;
    double best = 1e12;
    for (int i = 0; i < rounds; ++i) {
      CollOp op(c, {.count = bytes / 4, .verify = false}, static_cast<std::uint64_t>(i));
      if (!rank.barrier(1, rank.everyone(), 60)) return;
      const auto start = Clock::now();
      if (!drive({&op})) return;
      // The first one pays for memory seen for the first time.
      if (i > 0) best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      op.finish();
    }
    rank.note("us", std::to_string(best));
    (void)rank.barrier(1, rank.everyone(), 60);
  });
  double slowest = 0;
  const auto notes = verdict.notes.find("us");
  if (notes == verdict.notes.end()) {
    std::fprintf(stderr, "%s\n", verdict.text().c_str());
    return 0;
  }
  for (const auto& [rank, us] : notes->second) slowest = std::max(slowest, std::atof(us.c_str()));
  return slowest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "chunk_bench LIBRARY RANKS BYTES [ROUNDS]\n");
    return 2;
  }
  RunOptions options;
  options.plugin = argv[1];
  options.ranks = std::atoi(argv[2]);
  options.audit = false;
  options.environment = {{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_NET_PLUGIN", argv[1]}, {"CGX_COMMS", "all"}};
  const auto bytes = static_cast<std::size_t>(std::atoll(argv[3]));
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 4;
  std::printf("# all-reduce of %zu bytes, %d ranks: us by channels (down) and chunk KiB (across)\n#    ", bytes,
              options.ranks);
  for (std::size_t chunk = 32; chunk <= 512; chunk *= 2) std::printf("%10zu", chunk);
  std::printf("\n");
  for (const int channels : {1, 2, 4, 8}) {
    std::printf("%5d", channels);
    for (std::size_t chunk = 32; chunk <= 512; chunk *= 2) {
      std::printf("%10.0f", quickest(options, channels, chunk << 10, bytes, rounds));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  return 0;
}
