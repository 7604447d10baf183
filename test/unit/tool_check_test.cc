// The checker: it must accept what each mode may do, and nothing that is clearly beyond. The codec is used here to make
// honest results.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "cgx/codec.h"
#include "tools/check.h"
#include "tools/numbers.h"

namespace cgx::tool {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Fixed final : public Input {
 public:
  explicit Fixed(std::vector<std::vector<float>> values) : values_(std::move(values)) {}
  Status read(int rank, std::size_t first, std::span<float> out) const override {
    const std::vector<float>& mine = values_[static_cast<std::size_t>(rank)];
    std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    return {};
  }

 private:
  std::vector<std::vector<float>> values_;
};

Row rowOf(DType dtype, std::vector<std::vector<float>> values) {
  Row row;
  row.count = values.front().size();
  row.dtype = dtype;
  row.input = std::make_unique<Fixed>(std::move(values));
  return row;
}

Verdict judged(const Row& row, int ranks, Mode mode, const std::vector<float>& result) {
  std::vector<std::byte> bytes(row.count * codec::bytesOf(row.dtype));
  for (std::size_t i = 0; i < row.count; ++i) floatToElement(row.dtype, result[i], bytes.data(), i);
  Result<Verdict> verdict = check(row, ranks, mode, bytes.data(), [](double) {});
  EXPECT_TRUE(verdict.ok());
  return verdict.ok() ? verdict.value() : Verdict{};
}

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = normal(engine) * std::ldexp(1.0F, static_cast<int>(i / 512 % 7));
  return values;
}

struct Case {
  int bits;
  Rounding rounding;
  DType dtype;
};

/// Two ranks: rank 0 owns everything, rank 1's contribution is coded, the sum is coded: both quantisations happen.
std::vector<float> honest(const Case& c, const Row& row) {
  const codec::Kernels& kernels = *codec::targets().back();
  const std::size_t bytes = row.count * codec::bytesOf(row.dtype);
  std::vector<std::vector<std::byte>> in(2, std::vector<std::byte>(bytes));
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(readElements(row, rank, 0, in[static_cast<std::size_t>(rank)]).ok());
  std::vector<std::byte> sent(codec::payloadCapacity(row.dtype, row.count));
  std::vector<std::byte> gathered(sent.size());
  codec::EncodeSpec spec;
  spec.bits = c.bits;
  spec.rounding = c.rounding;
  spec.noise.key = 5;
  const codec::Encoded encoded = kernels.encode(spec, row.dtype, in[1].data(), row.count, sent.data());
  std::array<codec::Contribution, 2> parts;
  parts[0].exact = in[0].data();
  parts[1].payload = {encoded.form, {sent.data(), encoded.bytes}};
  std::vector<std::byte> own(bytes);
  spec.noise.key = 6;
  (void)kernels.reduce(spec, row.dtype, parts, row.count, gathered.data(), own.data());
  std::vector<float> result(row.count);
  for (std::size_t i = 0; i < row.count; ++i) result[i] = elementToFloat(row.dtype, own.data(), i);
  return result;
}

class ToolCheck : public testing::TestWithParam<Case> {};

TEST_P(ToolCheck, AcceptsAnHonestResultAndRefusesAnErrorOfTheSumsSize) {
  const Case c = GetParam();
  const Mode mode{c.bits, c.rounding};
  const Row row = rowOf(c.dtype, {noise(70001, 1), noise(70001, 2)});  // more than one piece, a partial tile at the end
  std::vector<float> result = honest(c, row);
  const Verdict good = judged(row, 2, mode, result);
  EXPECT_EQ(good.broken, 0U) << good.firstBroken;
  EXPECT_LE(good.nmse, c.bits >= 4 ? 0.06 : 12.0);
  result[69999] += 1000;
  const Verdict bad = judged(row, 2, mode, result);
  EXPECT_EQ(bad.broken, 1U);
  EXPECT_NE(bad.firstBroken.find("element 69999"), std::string::npos) << bad.firstBroken;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic})
      for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8, codec::kExactBits}) all.push_back({bits, rounding, dtype});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Modes, ToolCheck, testing::ValuesIn(cases()), [](const auto& param) {
  return std::string(nameOf(param.param.dtype)) +
         (param.param.rounding == Rounding::Nearest ? "Nearest" : "Stochastic") + std::to_string(param.param.bits);
});

TEST(ToolCheckExact, WantsTheSumInRankOrderToTheLastBit) {
  const Row row = rowOf(DType::F32, {{1e8F, 1}, {5, -0.0F}, {-1e8F, 0}});
  const Mode exact{codec::kExactBits, Rounding::Nearest};
  const float ordered = (1e8F + 5) - 1e8F;
  EXPECT_EQ(judged(row, 3, exact, {ordered, 1}).broken, 0U);
  EXPECT_EQ(judged(row, 3, exact, {std::nextafter(ordered, 0.0F), 1}).broken, 1U);
}

TEST(ToolCheckNonFinite, MustSurviveAtTheirElement) {
  const Row row = rowOf(DType::F16, {{std::nanf(""), kInf, 1, kInf}, {1, 1, 1, -kInf}});
  const Mode mode{4, Rounding::Nearest};
  const float nan = std::nanf("");
  EXPECT_EQ(judged(row, 2, mode, {nan, kInf, 2, nan}).broken, 0U);
  EXPECT_EQ(judged(row, 2, mode, {1, kInf, 2, nan}).broken, 1U);
  EXPECT_EQ(judged(row, 2, mode, {nan, -kInf, 2, nan}).broken, 1U);
  EXPECT_EQ(judged(row, 2, mode, {nan, kInf, nan, nan}).broken, 1U);
  EXPECT_EQ(judged(row, 2, mode, {nan, kInf, kInf, nan}).broken, 1U);
}

TEST(ToolCheckOverflow, MayBecomeInfOnlyWhereTheTypeEnds) {
  const Row row = rowOf(DType::F16, {{60000, 100}, {60000, 100}});
  const Mode mode{8, Rounding::Nearest};
  EXPECT_EQ(judged(row, 2, mode, {kInf, 200}).broken, 0U);
  EXPECT_EQ(judged(row, 2, mode, {kInf, kInf}).broken, 1U);
}

TEST(ToolCheckNmse, IsTheSquaredErrorOverTheSquaredSum) {
  const Row row = rowOf(DType::F32, {{1, 2}, {2, 2}});
  EXPECT_DOUBLE_EQ(judged(row, 2, {1, Rounding::Stochastic}, {3, 5}).nmse, 1.0 / 25);
  EXPECT_EQ(judged(row, 2, {1, Rounding::Stochastic}, {3, 4}).nmse, 0);
}

}  // namespace
}  // namespace cgx::tool
