#include "collective/regions.h"

#include <gtest/gtest.h>

#include <vector>

namespace cgx::collective {
namespace {

class RegionsTest : public testing::Test {
 protected:
  Region* add(std::size_t at, std::size_t bytes) { return regions_.add(memory_.data() + at, bytes, &isNew_); }
  bool staging(std::size_t at, std::size_t bytes = 1) {
    bool inside = false;
    EXPECT_TRUE(regions_.inStaging(memory_.data() + at, bytes, &inside).ok());
    return inside;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  Regions regions_;
  bool isNew_ = false;
};

TEST_F(RegionsTest, TheFirstRegionRegisteredTwiceInARowIsStaging) {
  Region* region = add(100, 200);
  EXPECT_FALSE(isNew_);
  EXPECT_FALSE(staging(100));
  EXPECT_EQ(add(100, 200), region);
  EXPECT_TRUE(isNew_);
  EXPECT_TRUE(staging(100));
  EXPECT_TRUE(staging(299));
  EXPECT_FALSE(staging(300));
  EXPECT_FALSE(staging(99));
  add(100, 200);
  EXPECT_FALSE(isNew_) << "cleared a second time, with operations perhaps running";
}

TEST_F(RegionsTest, AUserBufferRegisteredTwiceLaterIsNotStaging) {
  add(100, 200);
  add(500, 100);
  add(500, 100);
  EXPECT_FALSE(isNew_);
  EXPECT_FALSE(staging(500));
  add(100, 200);
  EXPECT_FALSE(isNew_) << "something else came between";
}

TEST_F(RegionsTest, StagingIsGoneWithItsFirstDeregistration) {
  Region* region = add(100, 200);
  add(100, 200);
  Region copy;
  bool first = false;
  EXPECT_TRUE(regions_.remove(region, &copy, &first));
  EXPECT_TRUE(first);
  bool inside = false;
  EXPECT_EQ(regions_.inStaging(memory_.data() + 150, 1, &inside).code(), Code::Invalid);
  EXPECT_TRUE(regions_.remove(region, &copy, &first));
  EXPECT_FALSE(first);
  EXPECT_FALSE(regions_.remove(region, &copy, &first)) << "taken back more often than given";
}

TEST_F(RegionsTest, AnOperationMayNotRunOverTheEndOfStaging) {
  add(100, 200);
  add(100, 200);
  bool inside = false;
  EXPECT_TRUE(regions_.inStaging(memory_.data() + 200, 100, &inside).ok());
  EXPECT_EQ(regions_.inStaging(memory_.data() + 200, 101, &inside).code(), Code::Invalid);
}

}  // namespace
}  // namespace cgx::collective
