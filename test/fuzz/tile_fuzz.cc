// Payloads from a hostile peer: whatever validate() accepts is decoded, added and reduced by every target without
// touching a byte outside its buffers, and all targets agree on the result. Input: dtype (1 byte), form (1), element
// count (2, little-endian), payload.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cgx/codec.h"

namespace {

using namespace cgx;

constexpr std::size_t kHeader = 4;
constexpr std::size_t kMostElements = 5000;

/// Exactly as large as asked, so that a sanitizer sees the first byte beyond; 64-byte aligned.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {
    std::memset(data_, 0xCC, bytes);
  }
  ~Buffer() { ::operator delete (data_, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  bool operator==(const Buffer& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data_, other.data_, bytes_) == 0;
  }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

struct Results {
  Results(codec::DType dtype, std::size_t count)
      : decoded(count * codec::bytesOf(dtype)),
        sum(count * sizeof(float)),
        own(count * codec::bytesOf(dtype)),
        out(codec::payloadCapacity(dtype, count)) {}
  Buffer decoded;
  Buffer sum;
  Buffer own;
  Buffer out;
  std::size_t outBytes = 0;
};

void require(bool condition, const char* target, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", target, what);
  std::abort();
}

void runAll(const codec::Kernels& kernels, const codec::Payload& payload, codec::DType dtype, std::size_t count,
            Results& r) {
  kernels.decode(payload, dtype, count, r.decoded.data());
  std::memset(r.sum.data(), 0, count * sizeof(float));
  kernels.decodeAdd(payload, dtype, count, reinterpret_cast<float*>(r.sum.data()));
  const codec::EncodeSpec spec{4, Rounding::Stochastic, {7, 0}};
  const std::array<codec::Contribution, 3> parts{{{nullptr, payload}, {r.decoded.data(), {}}, {nullptr, payload}}};
  const codec::Encoded encoded = kernels.reduce(spec, dtype, parts, count, r.out.data(), r.own.data());
  r.outBytes = encoded.bytes;
  const Status status = codec::validate({encoded.form, {r.out.data(), encoded.bytes}}, dtype, count);
  require(status.ok(), kernels.name, "made a payload that is not valid");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHeader) return 0;
  const auto dtype = static_cast<codec::DType>(data[0] % 3);
  const auto form = static_cast<codec::Form>(data[1] % 4);  // 3 is none
  const std::size_t count = (data[2] | std::size_t{data[3]} << 8) % kMostElements;
  const std::size_t bytes = size - kHeader;
  const auto copy = std::make_unique<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(copy.get(), data + kHeader, bytes);
  const codec::Payload payload{form, {copy.get(), bytes}};
  if (!codec::validate(payload, dtype, count).ok()) return 0;

  const codec::Kernels& reference = *codec::targets().back();
  Results expected(dtype, count);
  runAll(reference, payload, dtype, count, expected);
  for (const codec::Kernels* kernels : codec::targets()) {
    if (kernels == &reference) continue;
    Results r(dtype, count);
    runAll(*kernels, payload, dtype, count, r);
    require(r.decoded == expected.decoded, kernels->name, "decodes differently");
    require(r.sum == expected.sum, kernels->name, "adds differently");
    require(r.own == expected.own, kernels->name, "keeps another sum");
    require(r.outBytes == expected.outBytes && std::memcmp(r.out.data(), expected.out.data(), r.outBytes) == 0,
            kernels->name, "sends another sum");
  }
  return 0;
}
