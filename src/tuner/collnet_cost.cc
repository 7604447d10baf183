// What a sum through our collnet costs: the codec's work, the bytes on the link and the messages, from constants that
// were measured once (docs/performance.md, "The tuner's model") and are compiled in, so that every rank reckons alike.
#include <algorithm>
#include <bit>

#include "cgx/tuner.h"

namespace cgx::tuner {
namespace {

// Nanoseconds an element (codec, one worker) and a byte (sockets, both directions, one progress thread): CPU time of
// these threads in large all-reduces, caches cold.
constexpr double kEncodeNs = 0.5;
constexpr double kReduceNs = 0.35;  // one contribution
constexpr double kDecodeNs = 0.4;
constexpr double kSocketNs = 0.55;
constexpr double kWorkers = 1;  // of a rank, at least
// A tile of 512 elements has a width, a scale and 16 bucket bytes beside its codes.
constexpr double kTileBytes = 21.0 / 512;
// An operation from call to end, and each peer's messages in it.
constexpr double kOperationUs = 60;
constexpr double kPeerUs = 15;
// Stages overlap, but not their first and last blocks.
constexpr double kExposed = 0.25;
// What chunks make of a call, in bytes: of all channels, and NCCL's smallest chunk of one.
constexpr std::size_t kLeastCall = 128 << 10;
constexpr std::size_t kMostCall = 512 << 10;
constexpr std::size_t kLeastChunk = 32 << 10;
// Within a node the chain passes from GPU to GPU through host memory.
constexpr double kInsideGBps = 5;
constexpr double kInsideUs = 2 * 2.8;

}  // namespace

double collnetUs(const Settings& settings, const Group& group, std::size_t bytes, std::size_t elementBytes,
                 double linkGBps) noexcept {
  const auto nodes = static_cast<double>(group.nodes);
  const double share = (nodes - 1) / nodes;
  const auto size = static_cast<double>(bytes);
  const double elements = size / static_cast<double>(elementBytes);
  const bool exact = settings.bits > 8 || bytes <= settings.minBytes;
  const double wireBytes = elements * (exact ? static_cast<double>(elementBytes) : settings.bits / 8.0 + kTileBytes);
  const bool onePhase = bytes <= 2 * settings.onePhaseBytes / std::max<std::size_t>(1, group.nodes);
  const double sent = wireBytes * (onePhase ? nodes - 1 : 2 * share);

  const double encode = exact ? 0 : elements * (onePhase ? 1 : share + 1 / nodes) * kEncodeNs;
  const double reduce = elements * (onePhase ? nodes : share) * kReduceNs;
  const double decode = onePhase ? 0 : elements * share * kDecodeNs;
  const double codec = (encode + reduce + decode) / kWorkers * 1e-3;
  const double socket = sent * kSocketNs * 1e-3;
  const double link = sent * 1e-3 / std::max(linkGBps, 1e-6);
  const double local = static_cast<double>(group.ranks) / nodes - 1;
  const double inside = local > 0 ? size * 1e-3 / kInsideGBps : 0;

  const double longest = std::max({codec, socket, link, inside});
  const double rest = codec + socket + link + inside - longest;
  return kOperationUs + kPeerUs * (nodes - 1) + kInsideUs * local + longest + kExposed * rest;
}

// Measured at 1 Gb/s and on loopback (docs/performance.md): a call of 128 KiB is the least that keeps its fixed costs
// small, more than 512 KiB gain nothing, and with fewer than eight calls in flight their stages overlap less.
std::size_t chunkBytesFor(const Group&, std::size_t bytes, int channels, std::size_t chunkBytes) noexcept {
  if (channels <= 0) return chunkBytes;
  const std::size_t call = std::clamp(std::bit_floor(bytes / 8), kLeastCall, kMostCall);
  return std::clamp(std::bit_floor(call / static_cast<std::size_t>(channels)), kLeastChunk, kMostCall);
}

}  // namespace cgx::tuner
