// How large errors are: the bound of every mode holds for every element, stochastic rounding is unbiased, errors scale
// with their bucket and with nothing else, and grow with the number of ranks as they should.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/codec_inputs.h"
#include "support/simulated_all_reduce.h"

namespace cgx {
namespace {

using codec::DType;
using codec::EncodeSpec;
using codec::kBucket;
using codec::Kernels;
using codec::kTile;
using reference::Bytes;
using test::floatsOf;
using test::Pattern;

std::vector<float> normals(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

class CodecErrors : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
  std::vector<float> roundTrip(const EncodeSpec& spec, const std::vector<float>& values) const {
    const auto message = test::encodeWith(kernels(), spec, DType::F32, test::elementsOf(DType::F32, values));
    return floatsOf(DType::F32, test::decodeWith(kernels(), message, DType::F32, values.size()));
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecErrors, testing::ValuesIn(codec::targets().begin(), codec::targets().end()),
                         [](const auto& target) { return std::string(target.param->name); });

/// Largest |error| / bound over the elements; fails for one beyond its bound or not finite without need.
double checkAgainstBound(const EncodeSpec& spec, DType dtype, const std::vector<Bytes>& ranks, const Bytes& result) {
  const std::vector<float> got = floatsOf(dtype, result);
  std::vector<std::vector<float>> values;
  std::vector<const float*> pointers;
  for (const Bytes& rank : ranks) values.push_back(floatsOf(dtype, rank));
  for (const auto& v : values) pointers.push_back(v.data());
  std::vector<double> exact(got.size());
  std::vector<double> bound(got.size());
  codec::allReduceBound(spec, dtype, pointers, got.size(), exact.data(), bound.data());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(!std::isnan(exact[i]) || std::isnan(got[i])) << i;
    if (std::isinf(bound[i]) || got[i] == exact[i]) continue;
    EXPECT_LE(std::fabs(got[i] - exact[i]), bound[i]) << i << ": " << got[i] << " for " << exact[i];
    worst = std::max(worst, std::fabs(got[i] - exact[i]) / bound[i]);
  }
  return worst;
}

TEST_P(CodecErrors, StayWithinTheBoundOfEveryElement) {
  double worst = 0;
  for (const int bits : test::kWidths) {
    for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) {
      for (const DType dtype : test::kDTypes) {
        for (const Pattern pattern : test::kPatterns) {
          const EncodeSpec spec{bits, rounding, {static_cast<std::uint64_t>(bits), 0}};
          const std::size_t count = 1200 + static_cast<std::size_t>(bits) * 7;
          SCOPED_TRACE(std::string(test::nameOf(dtype)) + " bits " + std::to_string(bits) + " pattern " +
                       std::to_string(static_cast<int>(pattern)) +
                       (rounding == Rounding::Nearest ? " nearest" : " stochastic"));
          std::vector<Bytes> ranks;
          for (std::uint64_t rank = 0; rank < 3; ++rank) ranks.push_back(test::fill(pattern, dtype, count, rank + 5));
          const double ratio =
              checkAgainstBound(spec, dtype, ranks, test::simulatedAllReduce(kernels(), spec, dtype, ranks));
          if (HasFailure()) return;
          worst = std::max(worst, ratio);
        }
      }
    }
  }
  EXPECT_GT(worst, 0.5) << "a bound that nothing comes near to checks little";
}

TEST_P(CodecErrors, HaveABoundThatIsTightEnoughToFindMistakes) {
  const std::vector<float> values = normals(kTile, 1);
  const EncodeSpec spec{4, Rounding::Nearest, {}};
  const float* pointer = values.data();
  std::vector<double> exact(kTile);
  std::vector<double> bound(kTile);
  codec::allReduceBound(spec, DType::F32, {&pointer, 1}, kTile, exact.data(), bound.data());
  for (std::size_t i = 0; i < kTile; ++i) {
    EXPECT_EQ(values[i], exact[i]);
    EXPECT_LT(bound[i], 0.7);  // two roundings to half a step of at most an eighth of three sigma and a bit
    EXPECT_GT(bound[i], 0.1);
  }
}

TEST_P(CodecErrors, AreZeroOnAverageWhenRoundingIsStochastic) {
  if (&kernels() != codec::targets().front())
    GTEST_SKIP() << "the best target's statistics are tested; others make the same bytes";
  const std::vector<float> values = normals(kTile, 3);
  constexpr int kRounds = 1500;
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<double> sum(kTile);
    std::vector<double> squares(kTile);
    std::vector<int> ups(kTile);
    for (int round = 0; round < kRounds; ++round) {
      const EncodeSpec spec{
          bits, Rounding::Stochastic, {codec::noiseKey(1, 2, static_cast<std::uint64_t>(round), 3, 4), 0}};
      const std::vector<float> out = roundTrip(spec, values);
      for (std::size_t i = 0; i < kTile; ++i) {
        const double error = static_cast<double>(out[i]) - values[i];
        sum[i] += error;
        squares[i] += error * error;
        ups[i] += error > 0;
      }
    }
    // Each element's summed error is normal with a known spread, so its squared z is 1 on average; over hundreds of
    // elements that average is within 0.07 of 1. Elements so close to a level that they hardly ever leave it are not
    // normal.
    double chiSquare = 0;
    double counted = 0;
    for (std::size_t i = 0; i < kTile; ++i) {
      if (std::min(ups[i], kRounds - ups[i]) < 30) continue;
      chiSquare += sum[i] * sum[i] / squares[i];
      ++counted;
    }
    EXPECT_GT(counted, 400) << bits;
    EXPECT_NEAR(chiSquare / counted, 1, 0.35) << bits;
    const double total = std::accumulate(sum.begin(), sum.end(), 0.0);
    EXPECT_LT(std::fabs(total) / std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)), 4) << bits;
  }
}

TEST_P(CodecErrors, AreUncorrelatedBetweenNeighboursTilesRanksAndOperations) {
  const std::vector<float> half(8 * kTile, 0.5F);  // between two levels of a step of 1: the outcome is one bit of noise
  std::vector<float> values = half;
  for (std::size_t i = 0; i < values.size(); i += kBucket) values[i] = 8;
  const auto outcome = [&](std::uint64_t operation, std::uint32_t rank, std::uint32_t phase) {
    std::vector<float> out =
        roundTrip({4, Rounding::Stochastic, {codec::noiseKey(0, 7, operation, rank, phase), 0}}, values);
    for (float& v : out) v -= 0.5F;
    return out;
  };
  const auto correlation = [&](const std::vector<float>& a, const std::vector<float>& b, std::size_t shift) {
    double sum = 0;
    double n = 0;
    for (std::size_t i = 0; i + shift < a.size(); ++i) {
      if (i % kBucket == 0 || (i + shift) % kBucket == 0) continue;
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i + shift]) * 4;
      n += 1;
    }
    return std::fabs(sum) / std::sqrt(n);  // standard deviations
  };
  const std::vector<float> base = outcome(10, 2, 1);
  for (const std::size_t shift : {1U, 2U, 15U, 16U, 17U, 31U, 33U, 256U, 511U, 512U, 513U, 1024U}) {
    EXPECT_LT(correlation(base, base, shift), 4.5) << "shift " << shift;
  }
  EXPECT_LT(correlation(base, outcome(11, 2, 1), 0), 4.5) << "operations";
  EXPECT_LT(correlation(base, outcome(10, 3, 1), 0), 4.5) << "ranks";
  EXPECT_LT(correlation(base, outcome(10, 2, 2), 0), 4.5) << "phases";
  EXPECT_GT(correlation(base, outcome(10, 2, 1), 0), 30) << "the same key gives the same noise";
}

TEST_P(CodecErrors, ScaleWithTheInput) {
  const std::vector<float> values = normals(3 * kTile, 4);
  for (const int bits : {2, 4, 8}) {
    const std::vector<float> base = roundTrip({bits, Rounding::Stochastic, {5, 0}}, values);
    for (int k = -70; k <= 100; k += 10) {
      std::vector<float> scaled = values;
      for (float& v : scaled) v = std::ldexp(v, k);
      const std::vector<float> out = roundTrip({bits, Rounding::Stochastic, {5, 0}}, scaled);
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::ldexp(base[i], k), out[i]) << k << ' ' << i;
    }
    for (const int k : {-90, -120}) {  // tiles below 2^-80 are exact
      std::vector<float> scaled = values;
      for (float& v : scaled) v = std::ldexp(v, k);
      EXPECT_EQ(scaled, roundTrip({bits, Rounding::Stochastic, {5, 0}}, scaled));
    }
  }
}

TEST_P(CodecErrors, OfAnOutlierHurtOnlyItsBucket) {
  std::vector<float> values = normals(2 * kTile, 6);
  const auto bucketError = [&](const std::vector<float>& out, std::size_t bucket) {
    double error = 0;
    for (std::size_t i = bucket * kBucket; i < (bucket + 1) * kBucket; ++i) error += std::pow(out[i] - values[i], 2);
    return error;
  };
  const EncodeSpec spec{4, Rounding::Nearest, {}};
  const std::vector<float> before = roundTrip(spec, values);
  std::vector<double> errors;
  for (std::size_t k = 0; k < 2 * kTile / kBucket; ++k) errors.push_back(bucketError(before, k));
  values[100] = 1e6F;
  const std::vector<float> after = roundTrip(spec, values);
  for (std::size_t k = 0; k < errors.size(); ++k) {
    if (k == 100 / kBucket) continue;
    // In the outlier's tile steps are written in the coarser half of the ratio code: up to half as large again.
    EXPECT_LE(bucketError(after, k), errors[k] * (k < 16 ? 3.2 : 1.0)) << k;
  }
  for (std::size_t i = 96; i < 128; ++i) EXPECT_LE(std::fabs(after[i] - values[i]), 1e6 / 15) << i;
}

TEST_P(CodecErrors, GrowNoFasterThanTheRootOfTheNumberOfRanks) {
  const auto rms = [this](std::size_t count, int bits) {
    std::vector<Bytes> ranks;
    for (std::size_t rank = 0; rank < count; ++rank)
      ranks.push_back(test::elementsOf(DType::F32, normals(8 * kTile, rank + 50)));
    const EncodeSpec spec{bits, Rounding::Stochastic, {count, 0}};
    const std::vector<float> out = floatsOf(DType::F32, test::simulatedAllReduce(kernels(), spec, DType::F32, ranks));
    double error = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      double exact = 0;
      for (const Bytes& rank : ranks) exact += static_cast<double>(reference::load(DType::F32, rank.data(), i));
      error += std::pow(out[i] - exact, 2);
    }
    return std::sqrt(error / static_cast<double>(out.size()));
  };
  for (const int bits : {4, 8}) {
    const double two = rms(2, bits);
    for (const std::size_t count : {3U, 4U, 8U, 16U})
      EXPECT_LE(rms(count, bits), 1.35 * two * std::sqrt(static_cast<double>(count) / 2));
  }
}

TEST_P(CodecErrors, StayBelowTheStatedRmsForKnownDistributions) {
  struct Limit {
    int bits;
    double normal, laplace, heavy;
  };  // relative rms errors as docs/codec.md states them
  std::mt19937_64 random(9);
  std::exponential_distribution<float> exponential;
  const std::vector<float> normal = normals(64 * kTile, 10);
  std::vector<float> laplace(normal.size());
  std::vector<float> heavy(normal.size());
  for (std::size_t i = 0; i < normal.size(); ++i) {
    laplace[i] = exponential(random) * (random() % 2 == 0 ? 1.0F : -1.0F);
    heavy[i] = normal[i] * std::exp(2 * normal[(i + 1) % normal.size()]);
  }
  const auto relative = [this](const std::vector<float>& x, int bits) {
    const std::vector<float> out = roundTrip({bits, Rounding::Nearest, {}}, x);
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += std::pow(static_cast<double>(out[i]) - x[i], 2);
      energy += std::pow(static_cast<double>(x[i]), 2);
    }
    return std::sqrt(error / energy);
  };
  for (const Limit& limit :
       {Limit{2, 0.54, 0.53, 0.09}, Limit{4, 0.092, 0.113, 0.04}, Limit{8, 0.0058, 0.0072, 0.0055}}) {
    EXPECT_LT(relative(normal, limit.bits), limit.normal) << limit.bits;
    EXPECT_LT(relative(laplace, limit.bits), limit.laplace) << limit.bits;
    EXPECT_LT(relative(heavy, limit.bits), limit.heavy) << limit.bits;
  }
}

TEST_P(CodecErrors, LeaveTheNormOfTheResultAsItWas) {
  const auto normRatio = [this](int bits, std::uint64_t seed, bool layerNormLike) {
    std::vector<float> x = normals(2 * kTile, seed);
    if (layerNormLike) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + 0.02F * x[i];
    }
    const std::vector<float> out = roundTrip({bits, Rounding::Stochastic, {seed, 0}}, x);
    const auto norm = [](const std::vector<float>& v) {
      return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
    };
    return std::fabs(norm(out) / norm(x) - 1);
  };
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (const bool layerNormLike : {false, true}) {
      ASSERT_LT(normRatio(8, seed, layerNormLike), 0.01) << seed;
      ASSERT_LT(normRatio(4, seed, layerNormLike), 0.05) << seed;
    }
  }
}

TEST_P(CodecErrors, NeverTurnAnFp16SumIntoInfinity) {
  const std::vector<Bytes> large(8, test::elementsOf(DType::F16, std::vector<float>(kTile, 30000)));
  for (const float v :
       floatsOf(DType::F16, test::simulatedAllReduce(kernels(), {4, Rounding::Nearest, {}}, DType::F16, large))) {
    ASSERT_EQ(std::numeric_limits<float>::infinity(), v);
  }
  std::vector<Bytes> mixed;
  for (int rank = 0; rank < 8; ++rank) {
    mixed.push_back(test::elementsOf(DType::F16, std::vector<float>(kTile, rank % 2 == 0 ? 60000.0F : -60000.0F)));
  }
  for (const float v :
       floatsOf(DType::F16, test::simulatedAllReduce(kernels(), {4, Rounding::Nearest, {}}, DType::F16, mixed))) {
    ASSERT_EQ(0, v);
  }
  const std::vector<Bytes> tiny(8, test::elementsOf(DType::F16, std::vector<float>(kTile, 6e-8F)));
  for (const float v :
       floatsOf(DType::F16, test::simulatedAllReduce(kernels(), {4, Rounding::Nearest, {}}, DType::F16, tiny))) {
    ASSERT_FLOAT_EQ(8 * 0x1p-24F, v);
  }
}

TEST_P(CodecErrors, AreNotElementsInTheWrongPlace) {
  for (const DType dtype : test::kDTypes) {
    for (const std::size_t count : {65'535U, 65'536U, 65'537U, (1U << 20) + 1}) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7 + i / kTile) % 113 + 1);
      const Bytes elements = test::elementsOf(dtype, values);
      const auto message = test::encodeWith(kernels(), {8, Rounding::Nearest, {}}, dtype, elements);
      const std::vector<float> out = floatsOf(dtype, test::decodeWith(kernels(), message, dtype, count));
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(values[i], out[i], 0.8) << i;
      if (kernels().name == std::string_view("scalar")) break;  // slow, and its indices are the reference's
    }
  }
}

}  // namespace
}  // namespace cgx
