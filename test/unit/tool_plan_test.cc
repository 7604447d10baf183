// `cgx plan`: speeds as written, rows that agree with what the tuner does, a crossover that is one.
#include <gtest/gtest.h>

#include "plan.h"

namespace cgx::tool {
namespace {

const Lookup kNothing = [](const char*) -> const char* { return nullptr; };

Plan planned(std::size_t ranks, std::size_t nodes, const char* link, const char* sizes = "64M") {
  PlanOptions options;
  options.ranks = ranks;
  options.nodes = nodes;
  options.link = link;
  options.sizes = sizes;
  Result<Plan> plan = makePlan(options, kNothing);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return std::move(plan).value();
}

bool goes(std::size_t ranks, const char* link, std::size_t bytes) {
  return tuner::isCollnet(planned(ranks, 0, link, std::to_string(bytes).c_str()).rows.at(0).choice.algorithm);
}

TEST(PlanLink, IsBitsASecond) {
  for (const auto& [text, speed] : std::vector<std::pair<std::string, double>>{
           {"1G", 0.125}, {"25G", 3.125}, {"2.5G", 0.3125}, {"1000M", 0.125}, {"100Gb/s", 12.5}, {"10Gbps", 1.25}})
    EXPECT_DOUBLE_EQ(parseLinkSpeed(text).value(), speed) << text;
  for (const char* text : {"", "G", "25", "25GB", "25 G", "-1G", "0G", "1e3M", "nanG", "25K", "1000000G", "0x10G"}) {
    const auto speed = parseLinkSpeed(text);
    ASSERT_FALSE(speed.ok()) << text;
    EXPECT_NE(speed.status().text().find("25G, 2.5G, 1000M"), std::string::npos);
  }
}

TEST(Plan, OnASlowLinkCompressionGainsAboutItsRatio) {
  const Plan plan = planned(8, 0, "1G", "1G");
  const PlanRow& row = plan.rows.at(0);
  EXPECT_TRUE(tuner::isCollnet(row.choice.algorithm));
  EXPECT_NEAR(std::min(row.ringUs, row.treeUs) / row.oursUs, 7, 1);
  EXPECT_NEAR(row.ringUs, 2.0 * 7 / 8 * (1 << 30) / 120, 0.01 * row.ringUs) << "NCCL counts 1 Gb/s as 0.12 GB/s";
}

TEST(Plan, SixteenBitTypesGainHalf) {
  PlanOptions options;
  options.link = "1G";
  options.sizes = "256M";
  const double wide = makePlan(options, kNothing).value().rows.at(0).oursUs;
  options.dtype = "bf16";
  EXPECT_NEAR(makePlan(options, kNothing).value().rows.at(0).oursUs / wide, 2, 0.1);
}

TEST(Plan, TheCrossoverIsWhereTheChoiceTurns) {
  for (const char* link : {"1G", "10G"}) {
    for (const std::size_t ranks : {2, 8, 64, 1024}) {
      const Plan plan = planned(ranks, 0, link);
      ASSERT_TRUE(plan.crossover) << ranks << " at " << link;
      EXPECT_TRUE(goes(ranks, link, *plan.crossover));
      EXPECT_FALSE(goes(ranks, link, *plan.crossover - 1));
    }
  }
  EXPECT_FALSE(planned(2, 2, "400G").crossover);
}

TEST(Plan, SettingsOfTheJobCount) {
  PlanOptions options;
  options.link = "1G";
  options.sizes = "64M";
  const Lookup exact = [](const char* name) -> const char* { return std::string(name) == "CGX_BITS" ? "32" : nullptr; };
  EXPECT_FALSE(makePlan(options, exact).value().crossover);
  options.bits = 4;
  EXPECT_TRUE(makePlan(options, exact).value().crossover) << "the flag decides";
  const Lookup bad = [](const char* name) -> const char* { return std::string(name) == "CGX_BITS" ? "9" : nullptr; };
  EXPECT_NE(makePlan(options, bad).status().text().find("CGX_BITS"), std::string::npos);
}

TEST(Plan, RanksThatDoNotFillTheirNodesAreRefused) {
  PlanOptions options;
  options.ranks = 8;
  for (const std::size_t nodes : {3, 16}) {
    options.nodes = nodes;
    EXPECT_FALSE(makePlan(options, kNothing).ok());
  }
}

}  // namespace
}  // namespace cgx::tool
