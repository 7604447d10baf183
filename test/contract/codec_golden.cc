// Every SIMD target against the bytes of the Python implementation, test/golden/make.py, which says how its files are
// laid out.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "support/codec_inputs.h"

namespace cgx {
namespace {

using codec::DType;
using codec::Form;
using reference::Bytes;
using reference::Message;

constexpr std::size_t kBuffers = 6;

/// Reads the byte strings of a golden file.
class Golden {
 public:
  explicit Golden(DType dtype) {
    const char* name = dtype == DType::F32 ? "f32" : dtype == DType::F16 ? "f16" : "bf16";
    std::ifstream file(std::string(CGX_GOLDEN_DIR) + "/" + name + ".golden", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  bool done() const { return at_ + 4 > bytes_.size(); }
  Bytes next() {
    std::uint32_t length = 0;
    if (done()) return {};
    std::memcpy(&length, &bytes_[at_], 4);
    at_ += 4;
    const std::size_t end = std::min(bytes_.size(), at_ + length);
    Bytes field(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), bytes_.begin() + static_cast<std::ptrdiff_t>(end));
    at_ = end;
    return field;
  }

 private:
  Bytes bytes_;
  std::size_t at_ = 0;
};

struct Case {
  codec::EncodeSpec spec;
  std::uint32_t input = 0;
  std::uint32_t exact = 0;
  Message payload;
  Bytes decoded;
  Message other;
  Message reduced;
  Bytes own;
};

std::optional<Case> nextCase(Golden& golden) {
  std::uint32_t words[11];
  const Bytes spec = golden.next();
  if (spec.size() != sizeof words) return std::nullopt;
  std::memcpy(words, spec.data(), sizeof words);
  Case c;
  c.spec.bits = static_cast<int>(words[0]);
  c.spec.rounding = words[1] == 0 ? Rounding::Nearest : Rounding::Stochastic;
  c.spec.noise = {words[2] | std::uint64_t{words[3]} << 32, words[4] | std::uint64_t{words[5]} << 32};
  c.input = words[6];
  c.exact = words[7];
  c.payload = {static_cast<Form>(words[8]), golden.next()};
  c.decoded = golden.next();
  c.other = {static_cast<Form>(words[9]), golden.next()};
  c.reduced = {static_cast<Form>(words[10]), golden.next()};
  c.own = golden.next();
  return c;
}

class CodecGolden : public testing::TestWithParam<const codec::Kernels*> {
 protected:
  const codec::Kernels& kernels() const { return *GetParam(); }

  void expectCase(const Case& c, DType dtype, const std::vector<Bytes>& buffers) {
    const std::size_t count = c.decoded.size() / codec::bytesOf(dtype);
    EXPECT_EQ(c.payload, test::encodeWith(kernels(), c.spec, dtype, buffers.at(c.input)));
    EXPECT_EQ(c.decoded, test::decodeWith(kernels(), c.payload, dtype, count));

    const test::GuardedPayload first(c.payload);
    const test::GuardedPayload last(c.other);
    const std::array<codec::Contribution, 3> parts{
        {{nullptr, first.payload()}, {buffers.at(c.exact).data(), {}}, {nullptr, last.payload()}}};
    codec::EncodeSpec spec = c.spec;
    spec.noise.key ^= 2;
    const test::GuardedMemory out(codec::payloadCapacity(dtype, count), 64);
    const test::GuardedMemory own(c.own.size(), codec::bytesOf(dtype));
    const codec::Encoded encoded = kernels().reduce(spec, dtype, parts, count, out.data(), own.data());
    Message reduced{encoded.form, {}};
    reference::append(reduced.bytes, out.data(), encoded.bytes);
    EXPECT_EQ(c.reduced, reduced);
    EXPECT_EQ(0, std::memcmp(c.own.data(), own.data(), own.size()));
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, CodecGolden, testing::ValuesIn(codec::targets().begin(), codec::targets().end()),
                         [](const auto& target) { return std::string(target.param->name); });

TEST_P(CodecGolden, EncodesDecodesAndReducesAsThePythonImplementation) {
  for (const DType dtype : test::kDTypes) {
    Golden golden(dtype);
    std::vector<Bytes> buffers(kBuffers);
    for (Bytes& buffer : buffers) buffer = golden.next();
    int cases = 0;
    while (const std::optional<Case> c = nextCase(golden)) {
      SCOPED_TRACE(std::string(test::nameOf(dtype)) + " case " + std::to_string(cases++));
      expectCase(*c, dtype, buffers);
    }
    EXPECT_EQ(18, cases) << "nine widths and two roundings; are the golden files complete?";
    EXPECT_TRUE(golden.done());
  }
}

}  // namespace
}  // namespace cgx
