// The command line: which tool, with which flags. The only place in the tool that reads the environment.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "doctor/doctor.h"
#include "info.h"
#include "launch.h"
#include "perf.h"
#include "plan.h"
#include "run_report/run_report.h"
#include "topo/topo.h"

int main(int argc, char** argv) {
  constexpr int kUsage = 2;
  CLI::App app("cgx: compressed all-reduce for NCCL", "cgx");
  app.set_version_flag("--version", CGX_VERSION);
  app.require_subcommand(1);
  cgx::tool::PerfOptions perfOptions;
  CLI::App* perf = app.add_subcommand("perf", "Run all-reduces through the plugin on host memory; time and check them");
  cgx::tool::addPerfFlags(*perf, &perfOptions);
  cgx::tool::PlanOptions planOptions;
  CLI::App* plan = app.add_subcommand("plan", "Predict all-reduce times on a cluster, and what the tuner will choose");
  cgx::tool::addPlanFlags(*plan, &planOptions);
  cgx::tool::doctor::Options doctorOptions;
  CLI::App* doctor =
      app.add_subcommand("doctor", "Say what keeps NCCL on this host from using the plugin, and what to do about it");
  cgx::tool::doctor::addFlags(*doctor, &doctorOptions);
  cgx::tool::LaunchOptions launchOptions;
  CLI::App* launch = app.add_subcommand("run", "Start a program whose NCCL uses the plugin");
  cgx::tool::addLaunchFlags(*launch, &launchOptions);
  cgx::tool::RunReportOptions reportOptions;
  CLI::App* report = app.add_subcommand("report", "Sum up the statistics files of a job's ranks");
  cgx::tool::addRunReportFlags(*report, &reportOptions);
  cgx::tool::topo::Options topoOptions;
  CLI::App* topo = app.add_subcommand("topo", "Show how far this host's interfaces, GPUs and CPUs are apart");
  cgx::tool::topo::addFlags(*topo, &topoOptions);
  cgx::tool::InfoOptions infoOptions;
  CLI::App* info = app.add_subcommand("info", "Show version, plugin ABI, interfaces, instruction sets and settings");
  info->add_option("--plugin", infoOptions.plugin,
                   "Plugin to look into (default: libnccl-net-cgx.so next to this program)")
      ->type_name("PATH");
  info->add_flag("--markdown-settings", infoOptions.markdownSettings, "Print the table of settings of the README");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const cgx::Lookup environment = [](const char* name) -> const char* { return std::getenv(name); };
  if (info->parsed()) return cgx::tool::info(infoOptions, environment);
  if (launch->parsed()) return cgx::tool::launch(launchOptions, environment);
  if (doctor->parsed()) return cgx::tool::doctor::run(doctorOptions, environment);
  if (report->parsed()) return cgx::tool::report(reportOptions);
  if (topo->parsed()) return cgx::tool::topo::run(topoOptions, environment);
  if (plan->parsed()) return cgx::tool::plan(planOptions, environment);
  return cgx::tool::perf(perfOptions, std::vector<std::string>(argv, argv + argc), environment);
}
