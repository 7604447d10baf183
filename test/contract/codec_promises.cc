// What a user of the codec relies on, target by target: NaN and Inf, zeros, constants, saturation, the floating-point
// environment, conversions, what validate() refuses.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <limits>

#include "support/codec_inputs.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cgx {
namespace {

using codec::DType;
using codec::EncodeSpec;
using codec::Form;
using codec::Kernels;
using codec::kTile;
using reference::Bytes;
using reference::Message;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Rounding kRoundings[] = {Rounding::Nearest, Rounding::Stochastic};

float elementAt(DType dtype, const Bytes& elements, std::size_t i) {
  return reference::load(dtype, elements.data(), i);
}
std::uint32_t bitsAt(DType dtype, const Bytes& elements, std::size_t i) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, elements.data() + i * codec::bytesOf(dtype), codec::bytesOf(dtype));
  return bits;
}

class CodecPromises : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
  Bytes roundTrip(const EncodeSpec& spec, DType dtype, const Bytes& elements) const {
    const Message message = test::encodeWith(kernels(), spec, dtype, elements);
    return test::decodeWith(kernels(), message, dtype, elements.size() / codec::bytesOf(dtype));
  }
  /// Calls check(spec, dtype) for every width and rounding.
  template <class Check>
  void forEachMode(Check check) const {
    for (const int bits : test::kWidths) {
      for (const Rounding rounding : kRoundings) {
        for (const DType dtype : test::kDTypes) {
          SCOPED_TRACE(std::string(test::nameOf(dtype)) + " bits " + std::to_string(bits) +
                       (rounding == Rounding::Nearest ? " nearest" : " stochastic"));
          check(EncodeSpec{bits, rounding, {99, 0}}, dtype);
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecPromises, testing::ValuesIn(codec::targets().begin(), codec::targets().end()),
                         [](const auto& target) { return std::string(target.param->name); });

TEST_P(CodecPromises, NanAndInfArriveAndChangeNoOtherTile) {
  forEachMode([this](const EncodeSpec& spec, DType dtype) {
    Bytes elements = test::fill(test::Pattern::Normal, dtype, 4 * kTile, 3);
    const Bytes clean = roundTrip(spec, dtype, elements);
    const Bytes specials = test::elementsOf(dtype, {kInf, -kInf, std::bit_cast<float>(0xFFC00001U)});
    const std::size_t size = codec::bytesOf(dtype);
    for (std::size_t k = 0; k < 3; ++k) std::memcpy(&elements[(kTile + 7 + 100 * k) * size], &specials[k * size], size);
    const Bytes out = roundTrip(spec, dtype, elements);
    EXPECT_EQ(kInf, elementAt(dtype, out, kTile + 7));
    EXPECT_EQ(-kInf, elementAt(dtype, out, kTile + 107));
    const std::uint32_t nan = dtype == DType::F32 ? 0x7FC00000U : dtype == DType::F16 ? 0x7E00U : 0x7FC0U;
    EXPECT_EQ(nan, bitsAt(dtype, out, kTile + 207));
    EXPECT_EQ(0, std::memcmp(clean.data(), out.data(), kTile * size));
    EXPECT_EQ(0, std::memcmp(&clean[2 * kTile * size], &out[2 * kTile * size], 2 * kTile * size));
  });
}

TEST_P(CodecPromises, ExactZerosStayPlusZero) {
  forEachMode([this](const EncodeSpec& spec, DType dtype) {
    if (spec.bits == 1 || spec.bits == codec::kExactBits) return;  // no zero level; every bit is kept
    const Bytes elements = test::fill(test::Pattern::Sparse, dtype, 3 * kTile + 5, 4);
    const Bytes out = roundTrip(spec, dtype, elements);
    for (std::size_t i = 0; i < 3 * kTile + 5; ++i) {
      if (elementAt(dtype, elements, i) == 0) {
        ASSERT_EQ(0U, bitsAt(dtype, out, i)) << i;
      }
    }
  });
}

TEST_P(CodecPromises, BucketsOfZerosStayPlusZeroAtOneBitToo) {
  for (const DType dtype : test::kDTypes) {
    for (const Rounding rounding : kRoundings) {
      std::vector<float> values(kTile, 0.0F);
      values[40] = -1;
      const Bytes out = roundTrip({1, rounding, {5, 0}}, dtype, test::elementsOf(dtype, values));
      for (std::size_t i = 0; i < kTile; ++i) {
        if (i / codec::kBucket != 1) {
          ASSERT_EQ(0U, bitsAt(dtype, out, i)) << i;
        }
      }
    }
  }
}

TEST_P(CodecPromises, ATensorOfZerosHasNoPayload) {
  forEachMode([this](const EncodeSpec& spec, DType dtype) {
    const float zero = spec.bits == codec::kExactBits ? 0.0F : -0.0F;
    codec::Encoded told;
    const Message message =
        test::encodeWith(kernels(), spec, dtype, test::elementsOf(dtype, std::vector<float>(1500, zero)), &told);
    EXPECT_EQ(Form::Zero, message.form);
    EXPECT_EQ(0U, told.bytes);
    EXPECT_EQ(3U, told.zeroTiles);
    EXPECT_EQ(0U, told.rawTiles);
  });
}

TEST_P(CodecPromises, ExactModeKeepsEveryBitButNanPayloads) {
  for (const DType dtype : test::kDTypes) {
    for (const test::Pattern pattern : test::kPatterns) {
      Bytes elements = test::fill(pattern, dtype, 2100, 8);
      if (pattern == test::Pattern::ZeroTiles)
        std::fill_n(elements.begin(), 600 * codec::bytesOf(dtype), std::uint8_t{0});
      const Bytes out = roundTrip({codec::kExactBits, Rounding::Stochastic, {}}, dtype, elements);
      for (std::size_t i = 0; i < 2100; ++i) {
        if (std::isnan(elementAt(dtype, elements, i))) continue;
        ASSERT_EQ(bitsAt(dtype, elements, i), bitsAt(dtype, out, i)) << i;
      }
    }
  }
}

TEST_P(CodecPromises, ConstantTilesAreExact) {
  std::mt19937_64 random(11);
  forEachMode([&](EncodeSpec spec, DType dtype) {
    for (int round = 0; round < 40; ++round) {
      spec.noise.key = random();
      const float value =
          std::ldexp(static_cast<float>(random() % 2000 + 1) / 999, static_cast<int>(random() % 20) - 10);
      const Bytes elements = test::elementsOf(dtype, std::vector<float>(2 * kTile, round % 2 == 0 ? value : -value));
      ASSERT_EQ(elements, roundTrip(spec, dtype, elements)) << value;
    }
  });
}

TEST_P(CodecPromises, FiniteInputsNeverDecodeToInfinity) {
  forEachMode([this](const EncodeSpec& spec, DType dtype) {
    const float largest = dtype == DType::F16 ? 65504.0F : dtype == DType::BF16 ? 0x1.FEp127F : reference::kMaxFloat;
    std::mt19937 random(5);
    std::vector<float> values(4 * kTile);
    for (float& v : values)
      v = (random() % 2 == 0 ? 1.0F : -1.0F) * largest * (0.99F + 0.01F * static_cast<float>(random() % 101) / 100);
    const Bytes out = roundTrip(spec, dtype, test::elementsOf(dtype, values));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(std::isfinite(elementAt(dtype, out, i))) << i << ' ' << values[i];
  });
}

TEST_P(CodecPromises, TilesBelowTwoToTheMinus80TravelAsTheyAre) {
  const Bytes elements = test::elementsOf(DType::F32, std::vector<float>(kTile, 0x1.9p-81F));
  codec::Encoded told;
  const Message message = test::encodeWith(kernels(), {4, Rounding::Nearest, {}}, DType::F32, elements, &told);
  EXPECT_EQ(1U, told.rawTiles);
  EXPECT_EQ(elements, message.bytes);
  const Bytes denormals = test::elementsOf(DType::F32, std::vector<float>(kTile, 0x1p-149F));
  EXPECT_EQ(denormals, roundTrip({4, Rounding::Nearest, {}}, DType::F32, denormals));
}

TEST_P(CodecPromises, ATileWhoseBucketsSpanTooMuchTravelsAsItIs) {
  for (const int bits : {1, 2, 4, 8}) {
    for (const float small : {0x1p-35F, 0x1.8p-36F, 0x1p-140F, 0x1p-149F}) {
      std::vector<float> values(2 * kTile, 1.0F);
      values[kTile + 64] = small;
      for (std::size_t i = 1; i < codec::kBucket; ++i) values[kTile + 64 + i] = 0;
      codec::Encoded told;
      test::encodeWith(kernels(), {bits, Rounding::Stochastic, {}}, DType::F32, test::elementsOf(DType::F32, values),
                       &told);
      EXPECT_EQ(small == 0x1p-35F ? 0U : 1U, told.rawTiles) << bits << ' ' << small;
    }
  }
}

TEST_P(CodecPromises, APayloadIsNeverLargerThanTheElements) {
  forEachMode([this](const EncodeSpec& spec, DType dtype) {
    for (const test::Pattern pattern : test::kPatterns) {
      for (const std::size_t count : {1U, 31U, 100U, 512U, 513U, 1700U}) {
        const Message message = test::encodeWith(kernels(), spec, dtype, test::fill(pattern, dtype, count, count));
        ASSERT_LE(message.bytes.size(), count * codec::bytesOf(dtype));
        ASSERT_EQ(message.form == Form::Raw, message.bytes.size() == count * codec::bytesOf(dtype));
      }
    }
  });
}

TEST_P(CodecPromises, NoiseDependsOnThePlaceInTheOperationOnly) {
  const Bytes elements = test::fill(test::Pattern::Normal, DType::F32, 8 * kTile, 12);
  const EncodeSpec whole{3, Rounding::Stochastic, {77, 5 * kTile}};
  const Bytes together = roundTrip(whole, DType::F32, elements);
  for (std::size_t tile = 0; tile < 8; ++tile) {
    EncodeSpec cut = whole;
    cut.noise.first += tile * kTile;
    const auto first = static_cast<std::ptrdiff_t>(4 * kTile * tile);
    const auto last = first + static_cast<std::ptrdiff_t>(4 * kTile);
    EXPECT_EQ(Bytes(together.begin() + first, together.begin() + last),
              roundTrip(cut, DType::F32, Bytes(elements.begin() + first, elements.begin() + last)));
  }
}

#if defined(__x86_64__)
unsigned environmentWord() { return _mm_getcsr(); }
void setEnvironmentWord(unsigned word) { _mm_setcsr(word); }
constexpr unsigned kStrange[] = {0xFFC0, 0x7F80 | 0x3F, 0x3F80,
                                 0x1F80 | 0x8040};  // FTZ, DAZ, all rounding modes, sticky flags
#elif defined(__aarch64__)
unsigned environmentWord() {
  std::uint64_t word = 0;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return static_cast<unsigned>(word);
}
void setEnvironmentWord(unsigned word) { asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{word})); }
constexpr unsigned kStrange[] = {1U << 24, 1U << 22, 2U << 22, 1U << 24 | 3U << 22,
                                 1U << 25};  // flush, rounding modes, default NaN
#endif

TEST_P(CodecPromises, TheCallersFloatingPointEnvironmentDoesNotMatterAndIsRestored) {
  const Bytes elements = test::fill(test::Pattern::Denormals, DType::F32, 3000, 6);
  const EncodeSpec spec{5, Rounding::Stochastic, {31, 0}};
  const Message message = test::encodeWith(kernels(), spec, DType::F32, elements);
  const test::GuardedPayload payload(message);
  const std::array<codec::Contribution, 2> parts{{{elements.data(), {}}, {nullptr, payload.payload()}}};
  std::array<Bytes, 5> results[2];  // what each kernel makes: in the default environment, in a strange one
  std::vector<std::byte> out(codec::payloadCapacity(DType::F32, 3000) + 64);
  std::byte* aligned = out.data() + (64 - reinterpret_cast<std::uintptr_t>(out.data()) % 64);
  Bytes own(elements.size());
  Bytes sum(elements.size());
  const unsigned usual = environmentWord();
  for (const unsigned strange : kStrange) {
    for (int round = 0; round < 2; ++round) {
      std::memcpy(sum.data(), elements.data(), sum.size());
      unsigned left[4];
      setEnvironmentWord(round == 0 ? usual : strange);
      const codec::Encoded encoded = kernels().encode(spec, DType::F32, elements.data(), 3000, aligned);
      left[0] = environmentWord();
      results[round][0].assign(reinterpret_cast<std::uint8_t*>(aligned),
                               reinterpret_cast<std::uint8_t*>(aligned) + encoded.bytes);
      kernels().decode(payload.payload(), DType::F32, 3000, own.data());
      left[1] = environmentWord();
      results[round][1] = own;
      kernels().decodeAdd(payload.payload(), DType::F32, 3000, reinterpret_cast<float*>(sum.data()));
      left[2] = environmentWord();
      results[round][2] = sum;
      const codec::Encoded reduced = kernels().reduce(spec, DType::F32, parts, 3000, aligned, own.data());
      left[3] = environmentWord();
      results[round][3].assign(reinterpret_cast<std::uint8_t*>(aligned),
                               reinterpret_cast<std::uint8_t*>(aligned) + reduced.bytes);
      results[round][4] = own;
      setEnvironmentWord(usual);
      if (round == 1) {
        for (const unsigned word : left) EXPECT_EQ(strange, word);
      }
    }
    for (std::size_t k = 0; k < results[0].size(); ++k) EXPECT_EQ(results[0][k], results[1][k]) << "kernel " << k;
  }
}

TEST_P(CodecPromises, ClearZeroesExactlyTheBytesAsked) {
  for (const std::size_t bytes : {0U, 1U, 15U, 63U, 64U, 65U, 1000U, 70'001U}) {
    for (const std::size_t offset : {0U, 1U, 33U}) {
      Bytes memory(bytes + offset + 70, 0xEE);
      kernels().clear(memory.data() + offset, bytes);
      for (std::size_t i = 0; i < memory.size(); ++i)
        ASSERT_EQ(i >= offset && i < offset + bytes ? 0 : 0xEE, memory[i]);
    }
    const test::GuardedMemory guarded(bytes);
    kernels().clear(guarded.data(), bytes);
  }
}

TEST_P(CodecPromises, ContentEndsAtTheLastElementWithABitSet) {
  for (const DType dtype : test::kDTypes) {
    const std::size_t size = codec::bytesOf(dtype);
    for (const std::size_t count : {0U, 1U, 7U, 64U, 1000U, 5001U}) {
      for (const auto edge : {test::GuardedMemory::Edge::End, test::GuardedMemory::Edge::Start}) {
        const test::GuardedMemory memory(count * size, size, edge);
        std::memset(memory.data(), 0, memory.size());
        EXPECT_EQ(0U, kernels().contentElements(dtype, memory.data(), count));
        for (std::size_t last = 0; last < count; last += 1 + count / 13) {
          std::memset(memory.data(), 0, memory.size());
          memory.data()[last * size + last % size] = std::byte{0x80};  // -0.0 counts: it has a bit set
          if (last > 3) memory.data()[size] = std::byte{1};
          EXPECT_EQ(last + 1, kernels().contentElements(dtype, memory.data(), count));
        }
      }
    }
  }
}

TEST_P(CodecPromises, NothingIsReadBeforeABufferEither) {
  for (const DType dtype : test::kDTypes) {
    for (const std::size_t count : {1U, 33U, 511U, 513U, 1537U}) {
      const Bytes elements = test::fill(test::Pattern::Specials, dtype, count, count);
      const EncodeSpec spec{4, Rounding::Stochastic, {1, 0}};
      const Message expected = reference::encode(spec, dtype, elements.data(), count);
      const test::GuardedMemory in(elements.size(), 1, test::GuardedMemory::Edge::Start);
      const test::GuardedMemory out(codec::payloadCapacity(dtype, count), 64, test::GuardedMemory::Edge::Start);
      std::memcpy(in.data(), elements.data(), elements.size());
      const codec::Encoded encoded = kernels().encode(spec, dtype, in.data(), count, out.data());
      ASSERT_EQ(expected.bytes.size(), encoded.bytes);
      ASSERT_EQ(0, std::memcmp(expected.bytes.data(), out.data(), encoded.bytes));
      kernels().decode({encoded.form, {out.data(), encoded.bytes}}, dtype, count, in.data());
      EXPECT_EQ(
          reference::image(reference::decode(expected, dtype, count), dtype),
          Bytes(reinterpret_cast<std::uint8_t*>(in.data()), reinterpret_cast<std::uint8_t*>(in.data()) + in.size()));
    }
  }
}

TEST(CodecTargets, EndWithScalarAndAreChosenByName) {
  ASSERT_FALSE(codec::targets().empty());
  EXPECT_STREQ("scalar", codec::targets().back()->name);
  EXPECT_EQ(codec::targets().front(), codec::select("auto").value());
  for (const Kernels* target : codec::targets()) EXPECT_EQ(target, codec::select(target->name).value());
  const auto unknown = codec::select("mmx");
  EXPECT_EQ(Code::Invalid, unknown.status().code());
  EXPECT_NE(std::string::npos, unknown.status().text().find("scalar")) << unknown.status().text();
}

}  // namespace
}  // namespace cgx
