#include "collective/plan.h"

#include <gtest/gtest.h>

#include "cgx/collective.h"

namespace cgx::collective {
namespace {

struct Case {
  Kind kind;
  codec::DType dtype;
  int ranks;
  std::size_t count;
};

Shape shapeOf(const Case& c) {
  Shape shape;
  shape.kind = c.kind;
  shape.dtype = c.dtype;
  shape.count = c.count;
  if (c.kind != Kind::AllReduce) {
    shape.perRank = c.count / static_cast<std::size_t>(c.ranks) + 3;
    shape.windowFirst = 1;
  }
  return shape;
}

// The pieces cut the operation into consecutive ranges, the blocks cut each piece: nothing is lost, nothing is done
// twice.
void expectPartition(const Case& c) {
  Limits limits;
  limits.ranks = c.ranks;
  const Plan plan(limits, shapeOf(c));
  if (plan.onePhase()) {
    for (const int r : {0, c.ranks - 1}) EXPECT_EQ(plan.piece(r), (Range{0, c.count}));
  }
  std::size_t next = 0;
  for (int r = 0; r < c.ranks; ++r) {
    const Range piece = plan.piece(r);
    if (plan.onePhase()) next = 0;
    if (piece.elements != 0) {
      EXPECT_EQ(piece.first, next);
      next = piece.first + piece.elements;
    }
    std::size_t at = piece.first;
    for (std::size_t b = 0; b < plan.blocks(r); ++b) {
      const Range block = plan.block(r, b);
      ASSERT_EQ(block.first, at) << "rank " << r << " block " << b;
      ASSERT_GT(block.elements, 0u);
      ASSERT_LE(block.elements * plan.shape().elementBytes(), limits.blockElements * 4);
      if (c.kind == Kind::AllReduce) {
        EXPECT_EQ(block.first % codec::kTile, 0u) << "noise and tiles want aligned blocks";
      }
      at += block.elements;
    }
    EXPECT_EQ(at, piece.first + piece.elements);
    if (piece.elements == 0) {
      EXPECT_EQ(plan.blocks(r), 0u);
    }
  }
  EXPECT_EQ(next, c.count);
}

TEST(Plan, CutsEveryOperationWithoutGapOrOverlap) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 16, 64, 1000, 1024}) {
    for (const std::size_t count :
         {0, 1, 2, 511, 512, 513, 4099, 16384, 65535, 65537, 300001, 1 << 20, (1 << 22) + 3}) {
      for (const codec::DType dtype : {codec::DType::F32, codec::DType::BF16}) {
        expectPartition({Kind::AllReduce, dtype, ranks, count});
        expectPartition({Kind::ReduceScatter, dtype, ranks, count});
      }
      expectPartition({Kind::AllGather, codec::DType::F32, ranks, count});
    }
  }
}

TEST(Plan, SmallOperationsTakeOnePhaseAndItsLimitFallsWithTheRanks) {
  Limits limits;
  limits.ranks = 2;
  const auto onePhase = [&](std::size_t count) { return Plan(limits, {.count = count}).onePhase(); };
  EXPECT_TRUE(onePhase(16384));
  EXPECT_FALSE(onePhase(16385));
  limits.ranks = 8;
  EXPECT_TRUE(onePhase(4096));
  EXPECT_FALSE(onePhase(4097));
}

TEST(Plan, OnePhaseNeverHasMoreBlocksThanAWindow) {
  Limits limits;
  limits.ranks = 2;
  limits.blockElements = 1024;
  limits.onePhaseBytes = 1 << 30;
  for (std::size_t count = 1; count < 100000; count += 37) {
    const Plan plan(limits, {.count = count});
    ASSERT_EQ(plan.onePhase(), count <= kWindow * 1024);
    if (plan.onePhase()) {
      ASSERT_LE(plan.blocks(0), kWindow);
    }
  }
}

TEST(Plan, AsManyOwnersAsTheBytesAreWorth) {
  Limits limits;
  limits.ranks = 8;
  const auto owners = [&](std::size_t count) {
    const Plan plan(limits, {.count = count});
    int n = 0;
    for (int r = 0; r < limits.ranks; ++r) n += plan.piece(r).elements > 0 ? 1 : 0;
    return n;
  };
  EXPECT_EQ(owners(8192), 1);   // 32 KiB
  EXPECT_EQ(owners(32768), 2);  // 128 KiB
  EXPECT_EQ(owners(49152), 3);
  EXPECT_EQ(owners(1 << 20), 8);
}

TEST(Plan, TableOfPieces) {
  Limits limits;
  limits.ranks = 4;
  const Plan plan(limits, {.count = 4 * 65536 + 100});
  EXPECT_EQ(plan.piece(0), (Range{0, 129 * 512}));
  EXPECT_EQ(plan.piece(1), (Range{129 * 512, 128 * 512}));
  EXPECT_EQ(plan.piece(3), (Range{385 * 512, 127 * 512 + 100}));
  EXPECT_EQ(plan.blocks(1), 4u);
  EXPECT_EQ(plan.block(1, 3), (Range{(129 + 96) * 512, 32 * 512}));
}

TEST(Plan, WindowsCutThePartsOfRanks) {
  Limits limits;
  limits.ranks = 3;
  const Plan plan(limits, {.kind = Kind::AllGather, .count = 15, .perRank = 10, .windowFirst = 7});
  EXPECT_EQ(plan.piece(0), (Range{0, 3}));
  EXPECT_EQ(plan.piece(1), (Range{3, 10}));
  EXPECT_EQ(plan.piece(2), (Range{13, 2}));
}

TEST(Staging, StaysWithinTheSettingAndFollowsTheFormula) {
  Settings settings;
  for (const int ranks : {2, 4, 8, 16, 64}) {
    const std::size_t elements = chooseBlockElements(settings, ranks);
    EXPECT_LE(stagingBytes(settings, ranks), settings.staging) << ranks;
    EXPECT_EQ(stagingBytes(settings, ranks), slotBytes(elements) * 8 * (3 * static_cast<std::size_t>(ranks - 1) + 2));
    EXPECT_EQ(elements % codec::kTile, 0u);
  }
  EXPECT_EQ(chooseBlockElements(settings, 2), 65536u);
  settings.blockElements = 1000;
  EXPECT_EQ(chooseBlockElements(settings, 2), 1024u);
}

}  // namespace
}  // namespace cgx::collective
