// The figures that the format was chosen for, on real gradients: error against CGX's min-max buckets at the same bits
// and in the same rounding, size on the wire, the layer that fares worst. docs/codec.md has the study.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/gradient_study.h"

namespace cgx {
namespace {

std::string gradientsFolder() {
  const char* chosen = std::getenv("CGX_GRADIENTS");
  return chosen != nullptr ? chosen : CGX_SOURCE_DIR "/../shared/gradients";
}

struct Target {
  const char* set;
  double mostOfCgx;  // NMSE, one quantisation and full all-reduce
};
constexpr Target kTargets[] = {{"transformer/step0005", 0.33},
                               {"transformer/step0400", 0.33},
                               {"convnet/step0005", 0.55},
                               {"convnet/step0300", 0.55},
                               {"embedding/step0100", 0.33}};

class CodecAccuracy : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Gradients, CodecAccuracy, testing::ValuesIn(kTargets), [](const auto& target) {
  std::string name = target.param.set;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

TEST_P(CodecAccuracy, FourBitsBeatMinMaxBucketsAtTheSameSize) {
  const study::Set set = study::loadSet(gradientsFolder(), GetParam().set);
  if (set.ranks.empty()) GTEST_SKIP() << "no gradients at " << gradientsFolder() << " (set CGX_GRADIENTS)";
  ASSERT_FALSE(set.layers.empty());
  for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) {
    SCOPED_TRACE(rounding == Rounding::Nearest ? "nearest" : "stochastic");
    const study::Figures cgx = study::measure(set, study::minMax(4, 512), rounding);
    const study::Figures ours = study::measure(set, study::shipped(4), rounding);
    EXPECT_LE(ours.one / cgx.one, GetParam().mostOfCgx);
    EXPECT_LE(ours.full / cgx.full, GetParam().mostOfCgx);
    EXPECT_LE(ours.wireBits, 4.35);
    EXPECT_LE(ours.worstLayer, rounding == Rounding::Nearest ? 0.04 : 0.06);
  }
}

}  // namespace
}  // namespace cgx
