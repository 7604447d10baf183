// The integer conversions of 16-bit floats, through the kernels: every value, every tie, and the neighbours of every
// tie.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "support/codec_inputs.h"

namespace cgx {
namespace {

using codec::DType;
using codec::EncodeSpec;
using codec::Kernels;
using codec::kTile;
using reference::Bytes;

constexpr EncodeSpec kExact{codec::kExactBits, Rounding::Nearest, {}};

class CodecHalves : public testing::TestWithParam<std::tuple<const Kernels*, DType>> {
 protected:
  const Kernels& kernels() const { return *std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  /// What the owner keeps of an exact reduction of `parts`.
  std::vector<std::uint16_t> sumOf(std::span<const codec::Contribution> parts, std::size_t count) const {
    std::vector<std::byte> out(codec::payloadCapacity(dtype(), count) + 64);
    std::vector<std::uint16_t> own(count);
    std::byte* aligned = out.data() + (64 - reinterpret_cast<std::uintptr_t>(out.data()) % 64);
    kernels().reduce(kExact, dtype(), parts, count, aligned, own.data());
    return own;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecHalves,
                         testing::Combine(testing::ValuesIn(codec::targets().begin(), codec::targets().end()),
                                          testing::Values(DType::F16, DType::BF16)),
                         [](const auto& c) {
                           return std::string(std::get<0>(c.param)->name) + test::nameOf(std::get<1>(c.param));
                         });

std::vector<std::uint16_t> allHalves() {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  return halves;
}

TEST_P(CodecHalves, EveryValueBecomesTheRightFp32Number) {
  const std::vector<std::uint16_t> halves = allHalves();
  std::vector<float> sum(halves.size(), -0.0F);
  const std::span bytes(reinterpret_cast<const std::byte*>(halves.data()), 2 * halves.size());
  kernels().decodeAdd({codec::Form::Raw, bytes}, dtype(), halves.size(), sum.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = reference::fromHalf(dtype(), halves[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(std::isnan(expected) ? std::bit_cast<float>(0x7FC00000U) : expected),
              std::bit_cast<std::uint32_t>(sum[i]))
        << std::hex << i;
  }
}

TEST_P(CodecHalves, EveryValueComesBackAndNansAreCanonical) {
  const std::vector<std::uint16_t> halves = allHalves();
  const codec::Contribution only{halves.data(), {}};
  const std::vector<std::uint16_t> out = sumOf({&only, 1}, halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const bool nan = std::isnan(reference::fromHalf(dtype(), halves[i]));
    ASSERT_EQ(nan ? (dtype() == DType::F16 ? 0x7E00 : 0x7FC0) : halves[i], out[i]) << std::hex << i;
  }
}

/// A payload that is `scale` everywhere: eight bits, level 1, ratio 1.
std::vector<std::byte> constantPayload(float scale, std::size_t tiles) {
  const std::size_t table = (tiles + 15) / 16 * 16;
  const std::size_t scales = (4 * tiles + 15) / 16 * 16;
  std::vector<std::byte> bytes(table + scales + tiles * (16 + 512), std::byte{128});  // code 128 is level 1
  std::fill_n(bytes.begin(), table + scales, std::byte{0});
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    bytes[tile] = std::byte{8};
    std::memcpy(&bytes[table + 4 * tile], &scale, 4);
  }
  std::fill_n(&bytes[table + scales], 16 * tiles, std::byte{127});
  return bytes;
}

/// The sums half + addend for all finite halves with this exponent, rounded by the kernels and by the reference.
void expectSums(
    DType dtype, unsigned exponent, int mantissaBits, float addend,
    const std::function<std::vector<std::uint16_t>(std::span<const codec::Contribution>, std::size_t)>& sumOf) {
  std::vector<std::uint16_t> halves;
  for (unsigned sign : {0U, 0x8000U}) {
    for (unsigned mantissa = 0; mantissa < 1U << mantissaBits; ++mantissa) {
      halves.push_back(static_cast<std::uint16_t>(sign | exponent << mantissaBits | mantissa));
    }
  }
  while (halves.size() % kTile != 0) halves.push_back(0);
  const std::vector<std::byte> payload = constantPayload(addend, halves.size() / kTile);
  const std::array<codec::Contribution, 2> parts{{{halves.data(), {}}, {nullptr, {codec::Form::Tiles, payload}}}};
  const std::vector<std::uint16_t> out = sumOf(parts, halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float sum = reference::fromHalf(dtype, halves[i]) + addend;
    ASSERT_EQ(reference::toHalf(dtype, sum), out[i]) << std::hex << halves[i] << " + " << addend;
  }
}

TEST_P(CodecHalves, EveryTieAndItsNeighboursRoundToNearestEven) {
  const int mantissaBits = dtype() == DType::F16 ? 10 : 7;
  const unsigned infinity = dtype() == DType::F16 ? 31 : 255;
  const int lowestUnit = dtype() == DType::F16 ? -24 : -133;
  for (unsigned exponent = 0; exponent < infinity; ++exponent) {
    const int unit = lowestUnit + (exponent == 0 ? 0 : static_cast<int>(exponent) - 1);
    for (const float fraction : {0.5F, 0.5F - 0x1p-12F, 0.5F + 0x1p-12F}) {
      expectSums(dtype(), exponent, mantissaBits, std::ldexp(fraction, unit),
                 [this](auto parts, std::size_t count) { return sumOf(parts, count); });
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace cgx
