// The real library's collnet half through every ABI version, rank count, type and shape of staging, exact and
// quantised.
#include <gtest/gtest.h>

#include <algorithm>

#include "system/plugin_under_test.h"

namespace cgx::host {
namespace {

std::vector<OpSpec> mixture(const Bound& bound, Fill fill = Fill::Normal) {
  std::vector<OpSpec> ops;
  for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16}) {
    for (const std::size_t count : {1UL, 100000UL, 1000UL, 70001UL, 511UL, 40000UL, 7UL})
      ops.push_back({.dtype = dtype, .count = count, .fill = fill, .bound = count <= 1000 ? exactly() : bound});
    ops.push_back({.dtype = dtype, .count = 50001, .buffers = Buffers::Registered, .fill = fill, .bound = bound});
    ops.push_back(
        {.dtype = dtype, .count = 50001, .buffers = Buffers::RegisteredInPlace, .fill = fill, .bound = bound});
    ops.push_back({.dtype = dtype, .count = 300, .buffers = Buffers::Registered, .fill = fill});
  }
  return ops;
}

std::vector<OpSpec> gatherAndScatter() {
  std::vector<OpSpec> ops;
  for (const Buffers buffers : {Buffers::Staging, Buffers::Registered}) {
    for (const std::size_t count : {1UL, 5000UL, 50001UL}) {
      ops.push_back({.op = Op::AllGather, .count = count, .buffers = buffers, .fill = Fill::Bits});
      ops.push_back({.op = Op::ReduceScatter, .dtype = ncclBfloat16, .count = count, .buffers = buffers});
      ops.push_back({.op = Op::ReduceScatter, .count = count, .buffers = buffers});
    }
  }
  return ops;
}

struct Shape {
  int abi;
  int ranks;
  Layout layout = Layout::Processes;
  int channels = 2;
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << "v" << s.abi << " " << s.ranks << " ranks in " << (s.layout == Layout::Threads ? "threads" : "processes")
       << ", " << s.channels << " channels";
}

class CollVersions : public testing::TestWithParam<Shape> {
 protected:
  void check(const Environment& environment, const Bound& bound) {
    RunOptions o = realPlugin(GetParam().ranks, environment);
    o.abi = GetParam().abi;
    o.layout = GetParam().layout;
    std::vector<OpSpec> ops = mixture(bound);
    if (o.abi >= 8)
      for (OpSpec& op : gatherAndScatter()) ops.push_back(op);
    const std::size_t all = ops.size();
    // Sixteen ranks on few cores take their time: every third operation, all types among them.
    if (o.ranks >= 16)
      for (std::size_t i = ops.size(); i-- > 0;)
        if (i % 3 != 0) ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
    const Verdict verdict = run(o, collOperations({.channels = GetParam().channels}, ops));
    EXPECT_TRUE(verdict.clean()) << verdict.text();
    EXPECT_GE(verdict.hashes.size() * (o.ranks >= 16 ? 3 : 1), std::min<std::size_t>(all, 30));
  }
};

TEST_P(CollVersions, ExactModeGivesTheSumInRankOrder) { check(exactMode(), exactly()); }
TEST_P(CollVersions, FourBitsStayWithinTheBound) { check(bits(4), quantised(4)); }

INSTANTIATE_TEST_SUITE_P(Pairwise, CollVersions,
                         testing::Values(Shape{6, 2}, Shape{7, 3}, Shape{8, 4}, Shape{9, 2, Layout::Threads},
                                         Shape{10, 1}, Shape{11, 5, Layout::Threads, 8},
                                         Shape{12, 2, Layout::Processes, 16}, Shape{12, 8},
                                         Shape{12, 16, Layout::Threads}));

class CollVersionsFull : public CollVersions {};

TEST_P(CollVersionsFull, ExactAndQuantised) {
  check(exactMode(), exactly());
  for (const int width : {1, 2, 3, 4, 6, 8}) check(bits(width, width % 2 ? "nearest" : "stochastic"), quantised(width));
}

std::vector<Shape> everyShape() {
  std::vector<Shape> out;
  for (int abi = 6; abi <= 12; ++abi)
    for (const int ranks : {1, 2, 3, 4, 5, 8, 16})
      for (const Layout layout : {Layout::Processes, Layout::Threads})
        if (ranks <= 8 || layout == Layout::Threads)
          out.push_back({abi, ranks, layout, (abi + ranks) % 3 == 0 ? 8 : (abi + ranks) % 3});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Slow, CollVersionsFull, testing::ValuesIn(everyShape()));

}  // namespace
}  // namespace cgx::host
