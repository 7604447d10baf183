// Every target against the scalar one where messages are long or mixed: random widths, roundings, dtypes and tiles,
// until a fixed number of cases has passed. What is right is the reference's business (codec_contract.cc); here all
// that counts is that all agree.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "cgx/codec.h"
#include "codec/format.h"

namespace cgx::codec {
namespace {

using Bytes = std::vector<std::byte>;

class CodecDifferential : public testing::TestWithParam<const Kernels*> {
 protected:
  static const Kernels& target() { return *GetParam(); }
  static const Kernels& scalar() { return *targets().back(); }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecDifferential, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param->name); });

struct Aligned {
  explicit Aligned(std::size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free) {
    std::memset(data.get(), 0xA5, bytes);
  }
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

struct Config {
  DType dtype;
  EncodeSpec spec;
  std::size_t count;
};

template <class Random>
Config randomConfig(Random& random) {
  Config c{};
  c.dtype = static_cast<DType>(random() % 3);
  c.spec.bits = random() % 10 == 0 ? kExactBits : static_cast<int>(random() % 8 + 1);
  c.spec.rounding = random() % 2 == 0 ? Rounding::Nearest : Rounding::Stochastic;
  c.spec.noise = {random(), kTile * (random() % 1000)};
  // Up to 100 elements a coded tile is larger than raw ones, which nothing but the end of the encoding knows.
  constexpr std::uint64_t kLimits[] = {60000, 6000, 6000, 100};
  c.count = random() % kLimits[random() % 4];
  return c;
}

void put(DType dtype, std::byte* at, std::size_t i, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::F32) {
    std::memcpy(at + 4 * i, &bits, 4);
  } else {
    const std::uint16_t half = dtype == DType::F16 ? format::f32ToF16(bits) : format::f32ToBf16(bits);
    std::memcpy(at + 2 * i, &half, 2);
  }
}

/// Tiles of numbers, of zeros of both signs, of one value, and of any bits at all; `rawPercent` of them hold an
/// infinity, so that both sides of "smaller than raw" are met, also late in a message.
template <class Random>
Bytes randomElements(const Config& c, Random& random, std::uint32_t rawPercent) {
  Bytes elements(c.count * bytesOf(c.dtype));
  std::normal_distribution<float> normal;
  for (std::size_t first = 0; first < c.count; first += kTile) {
    const auto kind = random() % 8;
    const float size = std::ldexp(1.0F, static_cast<int>(random() % 24) - 12);
    const float constant = normal(random) * size;
    for (std::size_t i = first; i < c.count && i < first + kTile; ++i) {
      float value = normal(random) * size;
      if (kind == 0) value = random() % 2 == 0 ? 0.0F : -0.0F;
      if (kind == 1) value = constant;
      if (kind == 2) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (kind == 3 && i % 64 < 32) value *= 0x1p-14F;
      if (kind == 4) value = i % 2 == 0 ? size : -size;
      put(c.dtype, elements.data(), i, value);
    }
    if (random() % 100 < rawPercent) put(c.dtype, elements.data(), first, INFINITY);
  }
  return elements;
}

Encoded encode(const Kernels& kernels, const Config& c, const Bytes& in, Aligned& out) {
  return kernels.encode(c.spec, c.dtype, in.data(), c.count, out.data.get());
}

::testing::AssertionResult same(const std::byte* a, const std::byte* b, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (a[i] != b[i]) return ::testing::AssertionFailure() << "byte " << i << " of " << bytes << " differs";
  }
  return ::testing::AssertionSuccess();
}

TEST_P(CodecDifferential, AgreesWithTheScalarTargetOnLongMixedMessages) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 120; ++i) {
    const Config c = randomConfig(random);
    SCOPED_TRACE(testing::Message() << "case " << i << " dtype " << static_cast<int>(c.dtype) << " bits " << c.spec.bits
                                    << " count " << c.count);
    const Bytes in = randomElements(c, random, i % 4 == 0 ? 95 : 3);
    Aligned expected(payloadCapacity(c.dtype, c.count));
    Aligned actual(payloadCapacity(c.dtype, c.count));
    const Encoded e = encode(scalar(), c, in, expected);
    const Encoded a = encode(target(), c, in, actual);
    ASSERT_EQ(e.form, a.form);
    ASSERT_EQ(e.bytes, a.bytes);
    ASSERT_EQ(e.zeroTiles, a.zeroTiles);
    ASSERT_EQ(e.rawTiles, a.rawTiles);
    ASSERT_TRUE(same(expected.data.get(), actual.data.get(), e.bytes));
    const Payload payload{e.form, {expected.data.get(), e.bytes}};
    Bytes expectedOut(in.size());
    Bytes actualOut(in.size());
    scalar().decode(payload, c.dtype, c.count, expectedOut.data());
    target().decode(payload, c.dtype, c.count, actualOut.data());
    ASSERT_TRUE(same(expectedOut.data(), actualOut.data(), in.size()));
  }
}

TEST_P(CodecDifferential, ReducesLikeTheScalarTargetAlsoInPlaceAndWhenTheSumTravelsRaw) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 80; ++i) {
    const Config c = randomConfig(random);
    SCOPED_TRACE(testing::Message() << "case " << i << " dtype " << static_cast<int>(c.dtype) << " bits " << c.spec.bits
                                    << " count " << c.count);
    const std::size_t others = random() % 5;
    std::vector<Aligned> payloads;
    std::vector<Contribution> parts;
    for (std::size_t k = 0; k < others; ++k) {
      payloads.emplace_back(payloadCapacity(c.dtype, c.count));
      const Encoded e = encode(scalar(), c, randomElements(c, random, i % 4 == 0 ? 95 : 3), payloads.back());
      parts.push_back({nullptr, {e.form, {payloads.back().data.get(), e.bytes}}});
    }
    const Bytes exact = randomElements(c, random, 0);
    Bytes expectedOwn = exact;
    Bytes actualOwn = exact;
    Aligned expected(payloadCapacity(c.dtype, c.count));
    Aligned actual(payloadCapacity(c.dtype, c.count));
    const std::size_t place = random() % (others + 1);
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(place), Contribution{expectedOwn.data(), {}});
    if (c.count == 0) continue;
    const Encoded e = scalar().reduce(c.spec, c.dtype, parts, c.count, expected.data.get(), expectedOwn.data());
    parts[place].exact = actualOwn.data();
    const Encoded a = target().reduce(c.spec, c.dtype, parts, c.count, actual.data.get(), actualOwn.data());
    ASSERT_EQ(e.form, a.form);
    ASSERT_EQ(e.bytes, a.bytes);
    ASSERT_TRUE(same(expected.data.get(), actual.data.get(), e.bytes));
    ASSERT_TRUE(same(expectedOwn.data(), actualOwn.data(), exact.size()));
  }
}

/// The conversions as each target does them, seen from outside: raw parts are widened, sums are narrowed.
TEST_P(CodecDifferential, WidensAll65536HalvesExactly) {
  constexpr std::size_t kAll = 65536;
  std::vector<std::uint16_t> halves(kAll);
  for (std::size_t i = 0; i < kAll; ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::F16, DType::BF16}) {
    std::vector<float> sum(kAll, -0.0F);
    target().decodeAdd({Form::Raw, std::as_bytes(std::span(halves))}, dtype, kAll, sum.data());
    for (std::size_t i = 0; i < kAll; ++i) {
      const std::uint32_t expected = dtype == DType::F16 ? format::f16ToF32(halves[i]) : format::bf16ToF32(halves[i]);
      ASSERT_EQ(expected, std::bit_cast<std::uint32_t>(sum[i])) << "half " << i;
    }
  }
}

TEST_P(CodecDifferential, RoundsSumsOfHalvesToNearestEvenAtAllTies) {
  constexpr std::size_t kAll = 65536;
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const auto widen = [&](std::uint16_t h) {
      return std::bit_cast<float>(dtype == DType::F16 ? format::f16ToF32(h) : format::bf16ToF32(h));
    };
    std::vector<std::uint16_t> a(kAll);
    std::vector<std::uint16_t> b(kAll);
    std::vector<std::uint16_t> own(kAll);
    // b is a power of two from far below a's last place to above it; half of that place, the ties, among them.
    for (std::uint32_t below = 0; below < 16; ++below) {
      const std::uint32_t mantissa = dtype == DType::F16 ? 10 : 7;
      for (std::size_t i = 0; i < kAll; ++i) {
        a[i] = static_cast<std::uint16_t>(i);
        const std::uint32_t exponent = (static_cast<std::uint32_t>(i) & 0x7FFF) >> mantissa;
        const std::uint32_t smaller = exponent > below ? exponent - below : 0;
        b[i] = static_cast<std::uint16_t>((smaller != 0 ? smaller << mantissa : below + 1) | (i * 0x8000 / 3 & 0x8000));
      }
      const std::array<Contribution, 2> parts{Contribution{a.data(), {}}, Contribution{b.data(), {}}};
      Aligned out(payloadCapacity(dtype, kAll));
      target().reduce({kExactBits, Rounding::Nearest, {}}, dtype, parts, kAll, out.data.get(), own.data());
      for (std::size_t i = 0; i < kAll; ++i) {
        const auto sum = std::bit_cast<std::uint32_t>(widen(a[i]) + widen(b[i]));
        ASSERT_EQ(dtype == DType::F16 ? format::f32ToF16(sum) : format::f32ToBf16(sum), own[i])
            << a[i] << " + " << b[i];
      }
    }
  }
}

TEST_P(CodecDifferential, ClearsExactlyTheGivenBytes) {
  Bytes memory(700, std::byte{0xFF});
  for (std::size_t first = 0; first < 70; first += 3) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65},
                                    std::size_t{200}, std::size_t{577}}) {
      std::fill(memory.begin(), memory.end(), std::byte{0xFF});
      target().clear(memory.data() + first, bytes);
      for (std::size_t i = 0; i < memory.size(); ++i) {
        ASSERT_EQ(i >= first && i < first + bytes ? std::byte{0} : std::byte{0xFF}, memory[i])
            << first << " + " << bytes << " at " << i;
      }
    }
  }
}

TEST_P(CodecDifferential, MeasuresContentUpToTheLastBitThatIsSet) {
  std::vector<std::uint16_t> elements(300, 0);
  EXPECT_EQ(0U, target().contentElements(DType::F16, elements.data(), elements.size()));
  for (std::size_t last = 0; last < elements.size(); ++last) {
    for (const std::uint16_t bit : {std::uint16_t{0x0001}, std::uint16_t{0x8000}}) {  // -0 counts: its bits are content
      elements[last] = bit;
      for (const std::size_t count : {last + 1, elements.size()}) {
        ASSERT_EQ(last + 1, target().contentElements(DType::F16, elements.data(), count));
        ASSERT_EQ((last + 2) / 2, target().contentElements(DType::F32, elements.data(), (count + 1) / 2));
      }
    }
    elements[last] = 0;
  }
}

}  // namespace
}  // namespace cgx::codec
