// Promise 1 and 2: the same bits on every rank, whatever target, order of events, floating-point environment or mixture
// of settings.
#include <algorithm>
#include <cmath>
#include <random>

#include "support/engine_ranks.h"

namespace cgx::collective {
namespace {

using codec::DType;
using test::Call;
using test::EngineRanks;

// Values that look like gradients, with the odd ones that break codecs: zeros, denormals, the largest, NaN and Inf.
void fill(std::vector<std::byte>& bytes, DType dtype, std::mt19937_64& random, bool odd) {
  std::normal_distribution<float> normal;
  const std::size_t width = codec::bytesOf(dtype);
  const float scale = std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
  for (std::size_t i = 0; i * width < bytes.size(); ++i) {
    const float v = normal(random) * scale;
    std::uint32_t bits;
    std::memcpy(&bits, &v, 4);
    if (dtype == DType::BF16) bits >>= 16;
    if (dtype == DType::F16) bits = ((bits >> 16) & 0x8000U) | (((bits >> 13) + 0x4000U) & 0x7bffU);
    if (odd && random() % 97 == 0) {
      static constexpr std::uint32_t kOdd32[] = {0,          0x80000000, 1,          0x807fffff, 0x7f7fffff,
                                                 0xff7fffff, 0x7f800000, 0x7fc00000, 0x7f800001};
      static constexpr std::uint32_t kOdd16[] = {0, 0x8000, 1, 0x8001, 0x7bff, 0xfbff, 0x7c00, 0x7e00, 0x7f80, 0x7f7f};
      bits = dtype == DType::F32 ? kOdd32[random() % std::size(kOdd32)] : kOdd16[random() % std::size(kOdd16)];
    }
    std::memcpy(bytes.data() + i * width, &bits, width);
  }
}

Settings randomSettings(std::mt19937_64& random) {
  static constexpr int kBits[] = {1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 32};
  Settings settings;
  settings.bits = kBits[random() % std::size(kBits)];
  settings.rounding = random() % 2 == 0 ? Rounding::Nearest : Rounding::Stochastic;
  settings.minBytes = random() % 3 == 0 ? 1024 : 0;
  settings.seed = random() % 4;
  return settings;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kConfigurations =
    150;  // the sanitizers look at memory, not at bits; all of them take a minute there
#else
constexpr std::uint64_t kConfigurations = 1000;
#endif

TEST(Identity, AThousandRandomConfigurationsGiveEveryRankTheSameBits) {
  const auto targets = codec::targets();
  for (std::uint64_t seed = 0; seed < kConfigurations; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t ranks = 1 + random() % 5;
    std::vector<Settings> settings(ranks, randomSettings(random));
    for (std::size_t r = 0; r < ranks; ++r) {
      settings[r].simd = targets[(r + seed) % targets.size()]->name;
      if (random() % 4 == 0) settings[r].bits = 1 + static_cast<int>(random() % 8);
    }
    Call call;
    call.shape.dtype = static_cast<DType>(random() % 3);
    call.shape.count = random() % (seed % 10 == 0 ? 60000 : 6000);
    call.send.resize(ranks);
    for (auto& send : call.send) {
      send.resize(call.shape.count * call.shape.elementBytes());
      fill(send, call.shape.dtype, random, seed % 2 == 0);
    }
    call.recv = call.send;
    call.inPlace = random() % 2 == 0;
    std::vector<std::vector<Call>> outcome;
    for (const std::uint64_t order : {seed, seed + 1000000}) {
      EngineRanks engines(order, settings, 1024 << (seed % 3), /*hostileFloats=*/true);
      outcome.push_back({call});
      ASSERT_EQ(engines.run(outcome.back()), "") << "configuration " << seed;
    }
    for (const auto& calls : outcome) {
      for (std::size_t r = 0; r < ranks; ++r) {
        ASSERT_EQ(calls[0].recv[r], outcome[0][0].recv[0])
            << "configuration " << seed << ", rank " << r << " of " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace cgx::collective
