#include "advise/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

#include "base/text.h"

namespace tare::advise {
namespace {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos &&
        Trim(std::string_view(line).substr(0, colon)) == "model name") {
      return std::string(Trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.cpu = CpuName();
  machine.usable_cores = UsableCores();
  machine.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  utsname name{};
  if (::uname(&name) == 0) {
    machine.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  return machine;
}

nlohmann::json ToJson(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"usable_cores", machine.usable_cores},
          {"memory_bytes", machine.memory_bytes},
          {"system", machine.system}};
}

}  // namespace tare::advise
