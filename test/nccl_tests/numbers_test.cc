// The numbers of the patches for nccl-tests, without a GPU: their error bound against what the codec really does, their
// gradients, their options.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cgx/codec.h"
#include "cgx_bound.h"
#include "cgx_gradients.h"
#include "cgx_wire.h"

namespace cgx {
namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kCount = 3 * kLayer + 777;

/// As the conversions of the language do it, which share no code with the library's.
float roundTo(codec::DType dtype, float x) {
  if (dtype == codec::DType::F16) return static_cast<float>(static_cast<_Float16>(x));
  if (dtype == codec::DType::F32) return x;
  auto bits = std::bit_cast<std::uint32_t>(x);
  bits += 0x7FFF + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}
std::vector<std::byte> stored(codec::DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * codec::bytesOf(dtype) + 64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == codec::DType::F32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else if (dtype == codec::DType::F16) {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    } else {
      const auto high = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
      std::memcpy(&bytes[2 * i], &high, 2);
    }
  }
  return bytes;
}
float loaded(codec::DType dtype, const std::byte* bytes, std::size_t i) {
  if (dtype == codec::DType::F32) {
    float x = 0;
    std::memcpy(&x, bytes + 4 * i, 4);
    return x;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * i, 2);
  if (dtype == codec::DType::BF16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

std::vector<std::vector<float>> gradients(codec::DType dtype, std::uint64_t seed) {
  std::vector<std::vector<float>> ranks(kRanks, std::vector<float>(kCount));
  for (int rank = 0; rank < kRanks; ++rank)
    for (std::int64_t i = 0; i < kCount; ++i)
      ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)] = roundTo(dtype, gradient(seed, rank, i));
  return ranks;
}

const Precision& precision(codec::DType dtype) {
  return dtype == codec::DType::F32 ? kFloat : dtype == codec::DType::F16 ? kHalf : kBfloat16;
}

/// The bound as the kernels compute it, block by block.
struct Bound {
  Bound(const std::vector<std::vector<float>>& ranks, codec::DType dtype, int bits, bool nearest)
      : sum(kCount), magnitude(kCount), bound(kCount) {
    const std::int64_t blocks = blocksOf(kCount);
    std::vector<double> error(static_cast<std::size_t>(blocks));
    std::vector<Range> range(static_cast<std::size_t>(blocks));
    const Sums s{kCount, sum.data(), magnitude.data(), error.data(), range.data()};
    for (const std::vector<float>& x : ranks) {
      for (std::int64_t b = 0; b < blocks; ++b) addBlock(s, b, x.data(), 1.0);
      for (std::int64_t b = 0; b < blocks; ++b)
        error[static_cast<std::size_t>(b)] += quantisationError(s, b, bits, nearest);
    }
    for (std::int64_t b = 0; b < blocks; ++b) rangeOfSums(s, b, precision(dtype), kRanks);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double second = quantisationError(s, b, bits, nearest);
      for (std::int64_t i = b * kBlock; i < std::min((b + 1) * kBlock, kCount); ++i)
        bound[static_cast<std::size_t>(i)] = boundOf(s, b, i, precision(dtype), kRanks, second);
    }
  }
  std::vector<double> sum;
  std::vector<double> magnitude;
  std::vector<double> bound;
};

/// The codec's sum of the elements from `first` on, as one message that starts there: rank 1 owns it.
std::vector<float> compressedSum(const std::vector<std::vector<float>>& ranks, codec::DType dtype,
                                 codec::EncodeSpec spec, std::size_t first) {
  const codec::Kernels& kernels = *codec::select("auto").value();
  const std::size_t count = static_cast<std::size_t>(kCount) - first;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::size_t lines = codec::payloadCapacity(dtype, count) / 64 + 1;
  std::vector<std::vector<Line>> payload(kRanks, std::vector<Line>(lines));
  std::vector<std::vector<std::byte>> values;
  std::vector<codec::Contribution> parts(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    values.push_back(stored(dtype, ranks[rank]));
    const std::byte* in = values[rank].data() + first * codec::bytesOf(dtype);
    spec.noise.key = codec::noiseKey(7, 1, 1, static_cast<std::uint32_t>(rank), 0);
    if (rank == 1) {
      parts[rank].exact = in;
      continue;
    }
    std::byte* out = payload[rank][0].bytes;
    const codec::Encoded encoded = kernels.encode(spec, dtype, in, count, out);
    parts[rank].payload = {encoded.form, {out, encoded.bytes}};
  }
  std::vector<std::byte> own(count * codec::bytesOf(dtype) + 64);
  spec.noise.key = codec::noiseKey(7, 1, 1, 1, 1);
  std::vector<Line> coded(lines);
  (void)kernels.reduce(spec, dtype, parts, count, coded[0].bytes, own.data());
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = loaded(dtype, own.data(), i);
  return result;
}

struct Case {
  codec::DType dtype;
  int bits;
  Rounding rounding;
};
class NcclTestsBound : public ::testing::TestWithParam<Case> {};

TEST_P(NcclTestsBound, HoldsForTheCodecWhereverNcclCutsTheMessage) {
  const auto& [dtype, bits, rounding] = GetParam();
  const auto ranks = gradients(dtype, 99);
  const Bound b(ranks, dtype, bits, rounding == Rounding::Nearest);
  codec::EncodeSpec spec;
  spec.bits = bits;
  spec.rounding = rounding;
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{500}}) {
    const std::vector<float> result = compressedSum(ranks, dtype, spec, first);
    int wrong = 0;
    double worst = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double off = std::fabs(static_cast<double>(result[i]) - b.sum[first + i]);
      if (!(off <= b.bound[first + i])) ++wrong;
      if (b.bound[first + i] > 0) worst = std::max(worst, off / b.bound[first + i]);
    }
    EXPECT_EQ(wrong, 0) << "message starts at element " << first;
    EXPECT_GT(worst, 0.1) << "a bound that nothing comes near finds no error";
  }
}

TEST_P(NcclTestsBound, IsNoTighterThanTheLibrarysAndNotMuchLooser) {
  const auto& [dtype, bits, rounding] = GetParam();
  const auto ranks = gradients(dtype, 5);
  const Bound b(ranks, dtype, bits, rounding == Rounding::Nearest);
  codec::EncodeSpec spec;
  spec.bits = bits;
  spec.rounding = rounding;
  std::vector<const float*> parts;
  for (const auto& rank : ranks) parts.push_back(rank.data());
  std::vector<double> exact(kCount);
  std::vector<double> theirs(kCount);
  codec::allReduceBound(spec, dtype, parts, static_cast<std::size_t>(kCount), exact.data(), theirs.data());
  double ours = 0;
  double libs = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    ASSERT_GE(b.bound[i], theirs[i]) << "element " << i;
    ours += b.bound[i];
    libs += theirs[i];
  }
  EXPECT_LT(ours, 6 * libs);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const codec::DType dtype : {codec::DType::F32, codec::DType::F16, codec::DType::BF16})
    for (const int bits : {1, 2, 4, 8, kExactBits})
      for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) all.push_back({dtype, bits, rounding});
  return all;
}
std::string nameOf(const ::testing::TestParamInfo<Case>& tested) {
  const std::array<const char*, 3> types = {"f32", "f16", "bf16"};
  return std::string(types[static_cast<std::size_t>(tested.param.dtype)]) + "_" + std::to_string(tested.param.bits) +
         (tested.param.rounding == Rounding::Nearest ? "_nearest" : "_stochastic");
}
INSTANTIATE_TEST_SUITE_P(All, NcclTestsBound, ::testing::ValuesIn(cases()), nameOf);

TEST(NcclTestsBoundOfOne, IsExceededWhereARanksContributionIsLost) {
  const auto ranks = gradients(codec::DType::F32, 99);
  for (const auto& [bits, share] : {std::pair{4, 0.001}, std::pair{8, 0.5}}) {
    const Bound b(ranks, codec::DType::F32, bits, false);
    int there = 0;
    int found = 0;
    for (std::size_t i = 0; i < ranks[2].size(); ++i) {
      there += ranks[2][i] != 0;
      found += std::fabs(static_cast<double>(ranks[2][i])) > b.bound[i];
    }
    EXPECT_GT(found, share * there) << bits << " bits: " << found << " of " << there;
  }
}

TEST(NcclTestsBoundOfOne, IsInfiniteWhereAHalfMayOverflow) {
  std::vector<std::vector<float>> ranks(kRanks, std::vector<float>(kCount, 20000.0F));
  const Bound b(ranks, codec::DType::F16, 4, false);
  EXPECT_TRUE(std::isinf(b.bound[0]));
}

TEST(NcclTestsGradients, HaveZerosATailAndLayersOfManyScales) {
  constexpr int kLayers = 64;
  int zeros = 0;
  double smallest = HUGE_VAL;
  double largest = 0;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    double energy = 0;
    for (std::int64_t i = 0; i < kLayer; ++i) {
      const float x = gradient(1, 0, layer * kLayer + i);
      zeros += x == 0;
      energy += static_cast<double>(x) * x;
    }
    smallest = std::min(smallest, energy);
    largest = std::max(largest, energy);
  }
  EXPECT_GT(zeros, kLayers * kLayer / 100);
  EXPECT_LT(zeros, kLayers * kLayer / 2);
  EXPECT_GT(largest / smallest, 1e4);
}

TEST(NcclTestsGradients, OfRanksAgreeInPartAndDependOnSeedRankAndElementAlone) {
  double cross = 0;
  double self = 0;
  double other = 0;
  for (std::int64_t i = 0; i < kLayer; ++i) {
    const double a = gradient(3, 0, i);
    const double b = gradient(3, 1, i);
    cross += a * b;
    self += a * a;
    other += b * b;
    ASSERT_EQ(gradient(3, 0, i), gradient(3, 0, i));
  }
  const double correlation = cross / std::sqrt(self * other);
  EXPECT_GT(correlation, 0.05);
  EXPECT_LT(correlation, 0.6);
  EXPECT_NE(gradient(4, 0, 11), gradient(3, 0, 11));
}

std::vector<std::string> parsed(std::vector<std::string> words) {
  options() = {};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  parseOptions(&argc, argv.data());
  EXPECT_EQ(argv[static_cast<std::size_t>(argc)], nullptr);
  return {argv.begin(), argv.begin() + argc};
}

TEST(NcclTestsOptions, AreTakenOutAndTheRestStays) {
  EXPECT_EQ(parsed({"p", "-b", "8", "-E", "4", "-e", "1G", "-W1", "--cgx_gradients=1", "-d", "half"}),
            (std::vector<std::string>{"p", "-b", "8", "-e", "1G", "-d", "half"}));
  EXPECT_EQ(options().bits, 4);
  EXPECT_TRUE(options().wire);
  EXPECT_TRUE(options().gradients);
  EXPECT_EQ(parsed({"p", "--cgx_bits", "32"}), (std::vector<std::string>{"p"}));
  EXPECT_EQ(options().bits, 32);
  EXPECT_FALSE(options().wire);
}

TEST(NcclTestsOptionsDeathTest, WithABadValueEndTheProgram) {
  EXPECT_EXIT(parsed({"p", "-E", "9"}), ::testing::ExitedWithCode(1), "1 to 8, or 32");
  EXPECT_EXIT(parsed({"p", "-E"}), ::testing::ExitedWithCode(1), "not ''");
  EXPECT_EXIT(parsed({"p", "-B", "yes"}), ::testing::ExitedWithCode(1), "0 or 1, not 'yes'");
}

TEST(NcclTestsWire, IsARatioOfWhatHappenedInBetweenOrADash) {
  char text[32];
  wireText({10, 0, 1000, 900}, {20, 0, 9000, 1900}, text, sizeof text);
  EXPECT_STREQ(text, "   8.00x");
  wireText({10, 0, 1000, 900}, {10, 0, 1000, 900}, text, sizeof text);
  EXPECT_STREQ(text, "       -");
  wireText({10, 0, 1000, 900}, {1, 0, 10, 5}, text, sizeof text);  // the library was loaded anew
  EXPECT_STREQ(text, "       -");
}

TEST(NcclTestsWire, IsAskedOfALibraryThatIsLoadedAndOfNoOther) {
  Totals totals;
  EXPECT_FALSE(readTotals(&totals));
  // What it looks for by name is found whatever path it was loaded by.
  void* library = dlopen(CGX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  totals.operations = 77;
  EXPECT_TRUE(readTotals(&totals));
  EXPECT_EQ(totals.operations, 0U);
  dlclose(library);
  EXPECT_FALSE(readTotals(&totals));
}

}  // namespace
}  // namespace cgx
