#include "run_report/run_report.h"

#include <cstdio>
#include <filesystem>

#include "run_report/run.h"
#include "statistics/file.h"

namespace cgx::tool {
namespace {

constexpr int kBad = 2;

Result<WholeRun> readRun(const std::vector<std::string>& paths) {
  std::vector<RunFile> files;
  for (const std::string& path : paths) {
    Result<RunFile> file = readRunFile(path);
    if (!file.ok()) return file.status();
    files.push_back(std::move(file).value());
  }
  return gatherRun(std::move(files));
}

/// A mistyped command line must not cost a job's numbers.
Status checkOutput(const RunReportOptions& options) {
  std::error_code error;
  for (const std::string& path : options.files) {
    if (std::filesystem::equivalent(path, options.output, error))
      return Status::invalid(printable(options.output) + ": is one of the statistics files; name another page with -o");
  }
  if (std::filesystem::is_directory(options.output, error))
    return Status::invalid(printable(options.output) + ": is a folder; name a file in it with -o");
  return {};
}

Status makeReport(const RunReportOptions& options) {
  const Result<WholeRun> run = readRun(options.files);
  if (!run.ok()) return run.status();
  if (!options.output.empty()) {
    CGX_TRY(checkOutput(options));
    CGX_TRY(statistics::replaceFile(options.output, runHtml(run.value())));
  }
  std::fputs(runText(run.value()).c_str(), stdout);
  return {};
}

}  // namespace

void addRunReportFlags(CLI::App& command, RunReportOptions* options) {
  command.add_option("files", options->files, "Statistics files that CGX_STATS_FILE named, as JSON, of all ranks")
      ->type_name("FILE")
      ->required();
  command
      .add_option("-o,--output", options->output,
                  "Write an HTML page with plots, too; it stands alone and replaces a file of that name")
      ->type_name("PAGE.html");
}

int report(const RunReportOptions& options) {
  const Status made = makeReport(options);
  if (made.ok()) return 0;
  std::fprintf(stderr, "cgx report: %s\n", made.text().c_str());
  return kBad;
}

}  // namespace cgx::tool
