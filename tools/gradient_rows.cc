// Rows from directories of rank<k>.npy files.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "input.h"
#include "npy.h"
#include "numbers.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;

class Gradients final : public Input {
 public:
  explicit Gradients(std::vector<NpyFile> files) : files_(std::move(files)) {}

  Status read(int rank, std::size_t first, std::span<float> out) const override {
    const NpyFile& file = files_[static_cast<std::size_t>(rank)];
    if (file.dtype() == DType::F32) return file.read(first, std::as_writable_bytes(out));
    std::vector<std::byte> halves(out.size() * 2);
    CGX_TRY(file.read(first, halves));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = elementToFloat(DType::F16, halves.data(), i);
    return {};
  }

 private:
  std::vector<NpyFile> files_;  // one a rank
};

/// "rank12.npy" -> 12; -1 for any other name.
int rankOf(const std::string& name) {
  if (!name.starts_with("rank") || !name.ends_with(".npy")) return -1;
  const char* begin = name.data() + 4;
  const char* end = name.data() + name.size() - 4;
  int rank = -1;
  const auto [stop, error] = std::from_chars(begin, end, rank);
  return error == std::errc{} && stop == end && rank >= 0 ? rank : -1;
}

using Sets = std::map<fs::path, std::map<int, fs::path>>;  // directory -> rank -> file

Result<Sets> findSets(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) return Status::invalid("--gradients " + root.string() + ": no such directory");
  Sets sets;
  fs::recursive_directory_iterator walk(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    const int rank = rankOf(walk->path().filename().string());
    if (rank >= 0) sets[walk->path().parent_path()][rank] = walk->path();
  }
  if (error) return Status::invalid("--gradients " + root.string() + ": " + error.message());
  if (sets.empty()) return Status::invalid("--gradients " + root.string() + ": no rank<k>.npy files in or below it");
  return sets;
}

/// The two last parts of the path, which is how people call a set: "transformer/step0400".
std::string setName(const fs::path& directory) {
  const fs::path whole = fs::absolute(directory).lexically_normal();
  return (whole.parent_path().filename() / whole.filename()).string();
}

Result<Row> rowOf(const fs::path& directory, const std::map<int, fs::path>& paths, int ranks, const DType* dtype) {
  if (paths.size() != static_cast<std::size_t>(ranks))
    return Status::invalid(directory.string() + " holds gradients of " + std::to_string(paths.size()) +
                           " ranks, but there are " + std::to_string(ranks) + " (use --ranks " +
                           std::to_string(paths.size()) + ")");
  if (paths.rbegin()->first != ranks - 1)
    return Status::invalid(directory.string() + ": ranks are not numbered 0 to " + std::to_string(ranks - 1));
  std::vector<NpyFile> files;
  for (const auto& [rank, path] : paths) {
    Result<NpyFile> file = NpyFile::open(path.string());
    if (!file.ok()) return file.status();
    files.push_back(std::move(file).value());
    if (files.back().count() != files.front().count() || files.back().dtype() != files.front().dtype())
      return Status::invalid(path.string() + " differs from rank 0's file in length or element type");
  }
  Row row;
  row.name = setName(directory);
  row.count = files.front().count();
  row.dtype = dtype != nullptr ? *dtype : files.front().dtype();
  row.input = std::make_unique<Gradients>(std::move(files));
  return row;
}

}  // namespace

Result<std::vector<Row>> gradientRows(const std::string& directory, int ranks, const DType* dtype) {
  Result<Sets> sets = findSets(directory);
  if (!sets.ok()) return sets.status();
  std::vector<Row> rows;
  for (const auto& [path, files] : sets.value()) {
    Result<Row> row = rowOf(path, files, ranks, dtype);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  return rows;
}

}  // namespace cgx::tool
