// NCCL libraries in prepared trees: wheels, PyTorch's own, environments, the loader's folders; damaged files.
#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "nccl_finder.h"
#include "python_folders.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;

std::string bytesOf(const void* data, std::size_t size) { return {static_cast<const char*>(data), size}; }

Elf64_Ehdr elfHeader() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shentsize = sizeof(Elf64_Shdr);
  return header;
}

/// Without sections: the whole file is searched.
std::string plainElf(const std::string& text) {
  const Elf64_Ehdr header = elfHeader();
  return bytesOf(&header, sizeof header) + text;
}

/// One section of GPU code, then .rodata.
std::string elfWithSections(const std::string& gpuCode, const std::string& constants) {
  const std::string names = std::string("\0.nv_fatbin\0.rodata\0.shstrtab\0", 30);
  Elf64_Ehdr header = elfHeader();
  std::size_t at = sizeof header;
  const auto section = [&](std::uint32_t name, const std::string& data) {
    Elf64_Shdr one{};
    one.sh_name = name;
    one.sh_type = SHT_PROGBITS;
    one.sh_offset = at;
    one.sh_size = data.size();
    at += data.size();
    return one;
  };
  const Elf64_Shdr sections[] = {section(1, gpuCode), section(12, constants), section(20, names)};
  header.e_shoff = at;
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  return bytesOf(&header, sizeof header) + gpuCode + constants + names + bytesOf(sections, sizeof sections);
}

class NcclFinder : public ::testing::Test {
 protected:
  NcclFinder() {
    std::string name = fs::temp_directory_path() / "cgx-finder-XXXXXX";
    root_ = fs::canonical(mkdtemp(name.data()));
    environment_["PATH"] = at("/usr/bin");
  }
  ~NcclFinder() override { fs::remove_all(root_); }

  std::string at(const std::string& path) const { return root_.string() + path; }
  std::string write(const std::string& path, const std::string& text) {
    const fs::path file = at(path);
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  void nccl(const std::string& path, const std::string& version) {
    write(path, plainElf("x NCCL version " + version + "+cuda12.4" + std::string(1, '\0')));
  }
  void program(const std::string& path, const std::string& text = "") {
    write(path, text);
    fs::permissions(at(path), fs::perms::owner_all);
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories(fs::path(at(path)).parent_path());
    fs::create_symlink(target, at(path));
  }
  std::vector<FoundNccl> find(const std::string& command) {
    const Lookup lookup = [this](const char* name) -> const char* {
      const auto it = environment_.find(name);
      return it == environment_.end() ? nullptr : it->second.c_str();
    };
    return findNccl(ncclRootsFor(command, lookup, root_.string()));
  }
  /// "version origin" of each.
  std::vector<std::string> said(const std::string& command) {
    std::vector<std::string> lines;
    for (const FoundNccl& one : find(command)) lines.push_back(one.version.text() + " " + one.origin);
    return lines;
  }

  fs::path root_;
  std::map<std::string, std::string> environment_;
};

using Lines = std::vector<std::string>;

TEST_F(NcclFinder, TheVersionIsReadFromTheConstantsOnly) {
  const std::string zero(1, '\0');
  const std::string file =
      write("/a.so", elfWithSections("NCCL version 9.9.9" + zero, "NCCL version 2.21.5+cuda12.4" + zero));
  EXPECT_EQ(ncclVersionOfFile(file).text(), "2.21.5");
}

TEST_F(NcclFinder, OtherTextsAboutVersionsAreNotTheVersion) {
  const std::string zero(1, '\0');
  const std::string file = write("/a.so", plainElf("Mismatched NCCL version detected : rank %d version %d" + zero +
                                                   "NCCL version %s" + zero + "NCCL version 2.27.7+cuda12.9" + zero));
  EXPECT_EQ(ncclVersionOfFile(file).text(), "2.27.7");
}

TEST_F(NcclFinder, AVersionAcrossTwoStretchesIsRead) {
  // A mebibyte is read at a time; the text lies at every place around that border.
  for (std::size_t before = (1 << 20) - 40 - sizeof(Elf64_Ehdr); before < (1 << 20) - sizeof(Elf64_Ehdr) + 2;
       ++before) {
    const std::string file =
        write("/a.so", plainElf(std::string(before, 'x') + "NCCL version 2.18.5+cuda11.0" + std::string(1, '\0')));
    ASSERT_EQ(ncclVersionOfFile(file).text(), "2.18.5") << before;
  }
}

TEST_F(NcclFinder, DamagedFilesAreUnknownAndHarmless) {
  EXPECT_FALSE(ncclVersionOfFile(at("/none")).known());
  EXPECT_FALSE(ncclVersionOfFile(root_).known());
  EXPECT_FALSE(ncclVersionOfFile(write("/empty", "")).known());
  EXPECT_FALSE(ncclVersionOfFile(write("/text", "NCCL version 2.18.5 in a text file")).known());
  const std::string whole = elfWithSections("code", "NCCL version 2.21.5+cuda12.4" + std::string(1, '\0'));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    (void)ncclVersionOfFile(write("/cut.so", whole.substr(0, bytes)));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(0xff);
    (void)ncclVersionOfFile(write("/damaged.so", damaged));
  }
}

TEST_F(NcclFinder, WheelsOfTheCommandsPythonComeFirst) {
  program("/usr/bin/python3.11");
  link("/usr/bin/python3", "python3.11");
  nccl("/usr/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "2.21.5");
  fs::create_directories(at("/usr/lib/python3.11/site-packages/nvidia_nccl_cu12-2.21.5.dist-info"));
  nccl("/usr/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2", "2.10.3");
  nccl("/opt/lib/libnccl.so.2", "2.28.9");
  write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
  write("/etc/ld.so.conf.d/cuda.conf", "/cuda/lib # a comment\n");
  nccl("/cuda/lib/libnccl.so.2", "2.18.5");
  environment_["LD_LIBRARY_PATH"] = at("/opt/lib") + ":" + at("/missing");
  const Lines expected{"2.21.5 pip wheel nvidia-nccl-cu12", "2.28.9 LD_LIBRARY_PATH", "2.18.5 loader's path"};
  EXPECT_EQ(said("python3"), expected);
  EXPECT_EQ(said("all_reduce_perf"), expected) << "a program that may start Python";
  nccl("/pre/libnccl.so.2.30.7", "2.30.7");
  environment_["LD_PRELOAD"] = at("/pre/libnccl.so.2.30.7") + " /lib/libother.so";
  EXPECT_EQ(said("python3").front(), "2.30.7 LD_PRELOAD");
}

TEST_F(NcclFinder, AnEnvironmentHidesTheSystemUnlessItSaysOtherwise) {
  program("/usr/bin/python3.11");
  nccl("/usr/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "2.18.5");
  link("/venv/bin/python", at("/usr/bin/python3.11"));
  write("/venv/pyvenv.cfg", "home = " + at("/usr/bin") + "\ninclude-system-site-packages = false\n");
  nccl("/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "2.27.7");
  EXPECT_EQ(said(at("/venv/bin/python")), Lines{"2.27.7 pip wheel nvidia-nccl"});
  environment_["PATH"] = at("/venv/bin") + ":" + at("/usr/bin");
  EXPECT_EQ(said("python"), Lines{"2.27.7 pip wheel nvidia-nccl"});
  write("/venv/pyvenv.cfg", "home = " + at("/usr/bin") + "\ninclude-system-site-packages = true\n");
  EXPECT_EQ(said("python"), (Lines{"2.27.7 pip wheel nvidia-nccl", "2.18.5 pip wheel nvidia-nccl"}));
}

TEST_F(NcclFinder, AScriptCountsAsItsInterpreter) {
  program("/conda/bin/python3.10");
  link("/conda/bin/python", "python3.10");
  nccl("/conda/lib/libnccl.so.2", "2.24.3");
  program("/conda/bin/torchrun", "#!" + at("/conda/bin/python") + "\nimport torch\n");
  EXPECT_EQ(said(at("/conda/bin/torchrun")), Lines{"2.24.3 Python's environment"});
  program("/tools/launch", "#!/usr/bin/env -S python -u\n");
  environment_["PATH"] = at("/conda/bin");
  EXPECT_EQ(said(at("/tools/launch")), Lines{"2.24.3 Python's environment"});
  program("/tools/other", "#!/bin/sh\n");
  EXPECT_EQ(said(at("/tools/other")), Lines{"2.24.3 Python's environment"}) << "the python of PATH";
}

TEST_F(NcclFinder, PyTorchMayBringItsOwn) {
  program("/usr/bin/python3.11");
  const std::string packages = "/usr/lib/python3.11/site-packages";
  nccl(packages + "/torch/lib/libtorch_cuda.so", "2.14.3");
  EXPECT_EQ(said(at("/usr/bin/python3.11")), Lines{"2.14.3 inside PyTorch"});
  nccl(packages + "/torch/lib/libnccl.so.2", "2.20.5");
  EXPECT_EQ(said(at("/usr/bin/python3.11")), Lines{"2.20.5 PyTorch's own"});
}

TEST_F(NcclFinder, AWheelsRecordHelpsWhereTheLibraryDoesNotTell) {
  program("/usr/bin/python3.11");
  write("/usr/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", plainElf("nothing"));
  fs::create_directories(at("/usr/lib/python3.11/site-packages/nvidia_nccl_cu13-2.28.9.dist-info"));
  EXPECT_EQ(said(at("/usr/bin/python3.11")), Lines{"2.28.9 pip wheel nvidia-nccl-cu13"});
}

TEST_F(NcclFinder, EachFileIsListedOnce) {
  nccl("/opt/lib/libnccl.so.2.21.5", "2.21.5");
  link("/opt/lib/libnccl.so.2", "libnccl.so.2.21.5");
  link("/opt/lib/libnccl.so", "libnccl.so.2");
  environment_["LD_LIBRARY_PATH"] = at("/opt/lib") + ":" + at("/opt/lib");
  const auto found = find("anything");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].path, at("/opt/lib/libnccl.so.2.21.5"));
}

TEST_F(NcclFinder, NothingAnywhereIsAnEmptyList) {
  environment_.clear();
  EXPECT_TRUE(find("").empty());
  EXPECT_TRUE(find("python3").empty());
}

TEST_F(NcclFinder, LoaderFilesThatIncludeOneAnotherEnd) {
  write("/etc/ld.so.conf", "include ld.so.conf\n/a\ninclude ld.so.conf\n");
  nccl("/a/libnccl.so.2", "2.19.3");
  EXPECT_EQ(said("x"), Lines{"2.19.3 loader's path"});
}

}  // namespace
}  // namespace cgx::tool
