#include "elf_text.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fd.h"

namespace cgx::tool {
namespace {

constexpr std::size_t kChunk = 1 << 20;
constexpr std::size_t kMostSections = 4096;  // a library has some 40

bool readAt(int fd, std::uint64_t offset, void* out, std::size_t bytes) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = retryEintr([&] { return ::pread(fd, to, bytes, static_cast<off_t>(offset)); });
    if (got <= 0) return false;
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

struct Range {
  std::uint64_t offset;
  std::uint64_t bytes;
};

bool within(const Range& range, std::uint64_t fileBytes) {
  return range.offset <= fileBytes && range.bytes <= fileBytes - range.offset;
}

bool isElf64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_ident[EI_DATA] == ELFDATA2LSB;
}

/// Where .rodata is. GPU code makes up most of NCCL's 200 MB, so reading it all would take a second.
std::vector<Range> readOnlyData(int fd, const Elf64_Ehdr& header, std::uint64_t fileBytes) {
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 || header.e_shnum > kMostSections) return {};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!readAt(fd, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return {};
  if (header.e_shstrndx >= sections.size()) return {};
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  if (!within({names.sh_offset, names.sh_size}, fileBytes) || names.sh_size > kChunk) return {};
  std::string text(names.sh_size, '\0');
  if (!readAt(fd, names.sh_offset, text.data(), text.size())) return {};
  std::vector<Range> ranges;
  for (const Elf64_Shdr& section : sections) {
    const Range range{section.sh_offset, section.sh_size};
    if (section.sh_type == SHT_NOBITS || section.sh_name >= text.size() || !within(range, fileBytes)) continue;
    if (std::string_view(text.c_str() + section.sh_name).starts_with(".rodata")) ranges.push_back(range);
  }
  return ranges;
}

bool searchRange(int fd, Range range, std::vector<char>& room, const std::function<bool(std::string_view)>& see) {
  while (range.bytes > 0) {
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(range.bytes, room.size()));
    if (!readAt(fd, range.offset, room.data(), bytes)) return false;
    if (see({room.data(), bytes})) return true;
    const std::size_t step = bytes > kElfOverlap && bytes < range.bytes ? bytes - kElfOverlap : bytes;
    range.offset += step;
    range.bytes -= step;
  }
  return false;
}

}  // namespace

bool searchElfConstants(const std::string& path, const std::function<bool(std::string_view)>& see) {
  const Fd fd(retryEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  Elf64_Ehdr header;
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (!readAt(fd.get(), 0, &header, sizeof header) || !isElf64(header)) return false;
  const auto fileBytes = static_cast<std::uint64_t>(status.st_size);
  std::vector<Range> ranges = readOnlyData(fd.get(), header, fileBytes);
  if (ranges.empty()) ranges.push_back({0, fileBytes});
  std::vector<char> room(kChunk);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return searchRange(fd.get(), range, room, see); });
}

}  // namespace cgx::tool
