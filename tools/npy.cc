#include "npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace cgx::tool {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 64 << 10;  // NumPy writes 128 bytes for a plain array

Status readAt(int fd, const std::string& path, std::size_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::system("reading " + path, errno);
    if (got == 0) return Status::invalid(path + " ends at byte " + std::to_string(offset + done));
    done += static_cast<std::size_t>(got);
  }
  return {};
}

/// What follows `'key':` in the header's dictionary, without leading blanks; empty when there is no such key.
std::string_view valueOf(std::string_view header, const std::string& key) {
  std::size_t at = header.find("'" + key + "'");
  if (at == std::string_view::npos) return {};
  at = header.find(':', at);
  if (at == std::string_view::npos) return {};
  at = header.find_first_not_of(" \t", at + 1);
  return at == std::string_view::npos ? std::string_view{} : header.substr(at);
}

/// "(3, 4)" -> 12, "(5,)" -> 5, "()" -> 1; false when it is not a tuple of numbers or overflows.
bool parseShape(std::string_view text, std::size_t* count, int* dimensions) {
  const std::size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == std::string_view::npos) return false;
  text = text.substr(1, close - 1);
  *count = 1;
  *dimensions = 0;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string item(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    item.erase(0, item.find_first_not_of(' '));
    if (item.empty()) continue;
    char* end = nullptr;
    errno = 0;
    const unsigned long long extent = std::strtoull(item.c_str(), &end, 10);
    if (end == item.c_str() || *end != '\0' || errno != 0 || item.front() == '-') return false;
    if (__builtin_mul_overflow(*count, static_cast<std::size_t>(extent), count)) return false;
    ++*dimensions;
  }
  return true;
}

}  // namespace

NpyFile::NpyFile(NpyFile&& other) noexcept { *this = std::move(other); }

NpyFile& NpyFile::operator=(NpyFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  path_ = std::move(other.path_);
  dtype_ = other.dtype_;
  count_ = other.count_;
  dataOffset_ = other.dataOffset_;
  return *this;
}

NpyFile::~NpyFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<NpyFile> NpyFile::open(const std::string& path) {
  NpyFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return Status::system("opening " + path, errno);
  if (Status status = file.readHeader(); !status.ok()) return status;
  return file;
}

Status NpyFile::readHeader() {
  std::array<unsigned char, 12> prefix{};
  CGX_TRY(readAt(fd_, path_, 0, std::as_writable_bytes(std::span(prefix).first(10))));
  if (std::memcmp(prefix.data(), kMagic.data(), kMagic.size()) != 0)
    return Status::invalid(path_ + " is not a .npy file (no \\x93NUMPY at its start)");
  const int major = prefix[6];
  if (major < 1 || major > 3)
    return Status::invalid(path_ + ": .npy format " + std::to_string(major) + " is not known");
  std::size_t length = prefix[8] + 256u * prefix[9];
  dataOffset_ = 10;
  if (major > 1) {  // four bytes of length instead of two
    CGX_TRY(readAt(fd_, path_, 8, std::as_writable_bytes(std::span(prefix).subspan(8, 4))));
    length = prefix[8] + 256u * prefix[9] + 65536u * prefix[10] + (std::size_t{1} << 24) * prefix[11];
    dataOffset_ = 12;
  }
  if (length > kMaxHeaderBytes) return Status::invalid(path_ + ": header of " + std::to_string(length) + " bytes");
  std::string header(length, '\0');
  CGX_TRY(readAt(fd_, path_, dataOffset_, std::as_writable_bytes(std::span(header))));
  dataOffset_ += length;

  const std::string_view descr = valueOf(header, "descr");
  if (descr.starts_with("'<f4'")) {
    dtype_ = codec::DType::F32;
  } else if (descr.starts_with("'<f2'")) {
    dtype_ = codec::DType::F16;
  } else {
    const std::string found(descr.substr(0, std::min(descr.find_first_of(",}"), descr.size())));
    return Status::invalid(path_ + " holds elements of type " + (found.empty() ? "?" : found) +
                           "; '<f4' and '<f2' are read");
  }
  int dimensions = 0;
  if (!parseShape(valueOf(header, "shape"), &count_, &dimensions))
    return Status::invalid(path_ + ": shape cannot be read");
  if (dimensions > 1 && !valueOf(header, "fortran_order").starts_with("False"))
    return Status::invalid(path_ + " is in Fortran order; C order is read");

  struct stat info {};
  if (::fstat(fd_, &info) != 0) return Status::system("reading " + path_, errno);
  const std::size_t have = static_cast<std::size_t>(info.st_size) - dataOffset_;
  if (have / codec::bytesOf(dtype_) < count_)
    return Status::invalid(path_ + " announces " + std::to_string(count_) + " elements but has " +
                           std::to_string(have) + " bytes of data");
  return {};
}

Status NpyFile::read(std::size_t first, std::span<std::byte> out) const {
  const std::size_t bytesEach = codec::bytesOf(dtype_);
  if (first > count_ || out.size() / bytesEach > count_ - first)
    return Status::invalid(path_ + " has only " + std::to_string(count_) + " elements");
  return readAt(fd_, path_, dataOffset_ + first * bytesEach, out);
}

}  // namespace cgx::tool
