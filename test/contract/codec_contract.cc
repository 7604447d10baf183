// Every SIMD target against the reference, byte for byte: payloads, decoded elements, sums and the fused reduction.
#include <gtest/gtest.h>

#include "cgx/codec.h"
#include "support/codec_inputs.h"
#include "support/reference_codec.h"

namespace cgx {
namespace {

using codec::DType;
using codec::EncodeSpec;
using codec::Kernels;
using reference::Message;
using test::Pattern;

class CodecContract : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecContract, testing::ValuesIn(codec::targets().begin(), codec::targets().end()),
                         [](const auto& target) { return std::string(target.param->name); });

/// Counts at which sections, tiles, buckets, vectors or bytes end differently: all edges, then a sample of what lies
/// between.
std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t power = 1; power <= 4096; power *= 2) {
    for (const std::size_t offset : {0, 1, 3}) {
      all.push_back(power + offset);
      if (power >= offset) all.push_back(power - offset);
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 24; ++i) all.push_back(random() % 4100);
  all.push_back(4099);
  return all;
}

struct Case {
  EncodeSpec spec;
  DType dtype;
  Pattern pattern;
  std::size_t count;
  std::string text() const {
    return std::string(test::nameOf(dtype)) + " bits " + std::to_string(spec.bits) +
           (spec.rounding == Rounding::Nearest ? " nearest" : " stochastic") + " pattern " +
           std::to_string(static_cast<int>(pattern)) + " count " + std::to_string(count);
  }
};

/// Every width, dtype, rounding and pattern, each with some of the counts: neighbouring cases take different ones.
template <class Check>
void forEachCase(std::size_t countsPerCase, Check check) {
  const std::vector<std::size_t> all = counts();
  std::size_t next = 0;
  std::size_t number = 0;
  for (const int bits : test::kWidths) {
    for (const DType dtype : test::kDTypes) {
      for (const Rounding rounding : {Rounding::Nearest, Rounding::Stochastic}) {
        for (const Pattern pattern : test::kPatterns) {
          for (std::size_t i = 0; i < countsPerCase; ++i) {
            next = (next + 37) % all.size();
            if (++number % test::kSampling != 0) continue;
            const EncodeSpec spec{bits, rounding, {0x1234567890ABCDEFU * next, 512 * (next % 5)}};
            const Case c{spec, dtype, pattern, all[next]};
            SCOPED_TRACE(c.text());
            check(c, test::fill(pattern, dtype, c.count, next));
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(CodecContract, EncodesTheBytesOfTheReference) {
  forEachCase(5, [this](const Case& c, const std::vector<std::uint8_t>& elements) {
    const Message expected = reference::encode(c.spec, c.dtype, elements.data(), c.count);
    const Message actual = test::encodeWith(kernels(), c.spec, c.dtype, elements);
    ASSERT_EQ(expected.form, actual.form);
    ASSERT_EQ(expected.bytes, actual.bytes);
    const std::span bytes(reinterpret_cast<const std::byte*>(actual.bytes.data()), actual.bytes.size());
    const Status status = codec::validate({actual.form, bytes}, c.dtype, c.count);
    ASSERT_TRUE(status.ok()) << status.text();
  });
}

TEST_P(CodecContract, DecodesToTheElementsOfTheReference) {
  forEachCase(3, [this](const Case& c, const std::vector<std::uint8_t>& elements) {
    const Message message = reference::encode(c.spec, c.dtype, elements.data(), c.count);
    const reference::Bytes expected = reference::image(reference::decode(message, c.dtype, c.count), c.dtype);
    ASSERT_EQ(expected, test::decodeWith(kernels(), message, c.dtype, c.count));
  });
}

TEST_P(CodecContract, AddsDecodedElementsInFp32) {
  forEachCase(2, [this](const Case& c, const std::vector<std::uint8_t>& elements) {
    const Message message = reference::encode(c.spec, c.dtype, elements.data(), c.count);
    const std::vector<reference::Value> values = reference::decode(message, c.dtype, c.count);
    const test::GuardedMemory sum(4 * c.count, 4);
    std::vector<std::uint32_t> expected(c.count);
    for (std::size_t i = 0; i < c.count; ++i) {
      const float start = i % 3 == 0 ? -0.0F : static_cast<float>(i) * 0.37F;
      std::memcpy(sum.data() + 4 * i, &start, 4);
      expected[i] = reference::store(DType::F32, start + values[i].value, false);
    }
    const test::GuardedPayload payload(message);
    kernels().decodeAdd(payload.payload(), c.dtype, c.count, reinterpret_cast<float*>(sum.data()));
    ASSERT_EQ(0, c.count == 0 ? 0 : std::memcmp(expected.data(), sum.data(), 4 * c.count));
  });
}

TEST_P(CodecContract, ReducesToTheBytesOfTheReference) {
  forEachCase(2, [this](const Case& c, const std::vector<std::uint8_t>& elements) {
    const std::size_t ranks = 1 + c.count % 5;
    const std::size_t exact = c.count % 7 % ranks;  // whose exact values are used, in its own memory
    std::vector<std::vector<reference::Value>> values;
    std::vector<std::unique_ptr<test::GuardedPayload>> payloads;
    std::vector<codec::Contribution> parts(ranks);
    const test::GuardedMemory own(elements.size(), codec::bytesOf(c.dtype));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Pattern pattern = rank % 2 == 0 ? c.pattern : Pattern::Normal;
      const auto mine = test::fill(pattern, c.dtype, c.count, c.count + rank);
      Message message = reference::encode(c.spec, c.dtype, mine.data(), c.count);
      if (rank == exact) {
        message = {codec::Form::Raw, mine};
        if (!mine.empty()) std::memcpy(own.data(), mine.data(), mine.size());
      }
      values.push_back(reference::decode(message, c.dtype, c.count));
      payloads.push_back(std::make_unique<test::GuardedPayload>(message));
      parts[rank].payload = payloads.back()->payload();
    }
    parts[exact] = {own.data(), {}};
    const reference::Reduced expected = reference::reduce(c.spec, c.dtype, values, c.count);
    const test::GuardedMemory out(codec::payloadCapacity(c.dtype, c.count), 64);
    std::memset(out.data(), 0x5A, out.size());
    const codec::Encoded encoded = kernels().reduce(c.spec, c.dtype, parts, c.count, out.data(), own.data());
    ASSERT_EQ(expected.message.form, encoded.form);
    ASSERT_EQ(expected.message.bytes.size(), encoded.bytes);
    ASSERT_EQ(0, encoded.bytes == 0 ? 0 : std::memcmp(expected.message.bytes.data(), out.data(), encoded.bytes));
    ASSERT_EQ(0, elements.empty() ? 0 : std::memcmp(expected.own.data(), own.data(), elements.size()));
  });
}

}  // namespace
}  // namespace cgx
