// NCCL's version numbers: its code of two eras, text, order.
#include "cgx/nccl_version.h"

#include <gtest/gtest.h>

namespace cgx {
namespace {

TEST(NcclVersion, CodesOfBothErasAreRead) {
  EXPECT_EQ(NcclVersion::fromCode(22809), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(NcclVersion::fromCode(23007), (NcclVersion{2, 30, 7}));
  EXPECT_EQ(NcclVersion::fromCode(21805), (NcclVersion{2, 18, 5}));
  EXPECT_EQ(NcclVersion::fromCode(20903), (NcclVersion{2, 9, 3}));
  EXPECT_EQ(NcclVersion::fromCode(2708), (NcclVersion{2, 7, 8}));
  EXPECT_FALSE(NcclVersion::fromCode(0).known());
  EXPECT_FALSE(NcclVersion::fromCode(-5).known());
  EXPECT_FALSE(NcclVersion::fromCode(999).known());
}

TEST(NcclVersion, TextIsThreeNumbersWhateverFollows) {
  EXPECT_EQ(NcclVersion::parse("2.28.9+cuda13.0"), (NcclVersion{2, 28, 9}));
  EXPECT_EQ(NcclVersion::parse("2.21.5"), (NcclVersion{2, 21, 5}));
  EXPECT_EQ(NcclVersion::parse("2.18.1.dist-info"), (NcclVersion{2, 18, 1}));
  for (const char* bad : {"", "2", "2.", "2.28", "2.28.", "%d.1.2", "-2.1.1", " 2.1.1", "2.1000.1", "0.1.2", "2..1",
                          "99999999999.1.1", "2.+1.3"})
    EXPECT_EQ(NcclVersion::parse(bad), std::nullopt) << bad;
  EXPECT_EQ((NcclVersion{2, 28, 9}).text(), "2.28.9");
  EXPECT_EQ(NcclVersion{}.text(), "unknown");
}

TEST(NcclVersion, OrderIsThatOfReleasesAndUnknownIsFirst) {
  EXPECT_LT((NcclVersion{2, 9, 9}), (NcclVersion{2, 10, 0}));
  EXPECT_LT((NcclVersion{2, 28, 3}), (NcclVersion{2, 28, 7}));
  EXPECT_LT(NcclVersion{}, (NcclVersion{1, 0, 0}));
}

}  // namespace
}  // namespace cgx
