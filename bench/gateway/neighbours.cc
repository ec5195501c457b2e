#include "gateway/neighbours.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "base/clock.h"

namespace tare::bench {

Neighbours::Neighbours(std::function<double()> own_children)
    : own_children_(std::move(own_children)), last_(Read()) {}

Neighbours::Reading Neighbours::Read() const {
  // The first line: cpu user nice system idle iowait irq softirq steal (man 5 proc).
  std::ifstream in("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  in >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  rusage own{};
  ::getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {
      ToSeconds(SteadyClock().Now()),
      (user + nice + system + irq + softirq + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
      seconds(own.ru_utime) + seconds(own.ru_stime) + own_children_()};
}

double Neighbours::Cores() {
  const Reading before = std::exchange(last_, Read());
  const double wall = last_.wall_s - before.wall_s;
  if (wall <= 0) return 0;
  const double others = (last_.busy_s - before.busy_s) - (last_.own_s - before.own_s);
  return std::max(0.0, others / wall);
}

}  // namespace tare::bench
