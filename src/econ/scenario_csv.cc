// CSV of a scenario's yearly costs.
#include <fmt/format.h>

#include "econ/csv.h"
#include "econ/scenario_report.h"

namespace tare::econ {
std::string ScenarioCsv(const Scenario& scenario, const ScenarioAnswer& answer) {
  std::string csv =
      "option,year,currency,purchase,depreciation,rent,energy,licence,staff,other,tokens,"
      "revenue\r\n";
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    int year = 1;
    for (const YearCosts& y : answer.options[i].years) {
      csv += fmt::format(
          "{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f}\r\n",
          CsvCell(scenario.options[i].name), year++, scenario.currency, y.purchase, y.depreciation,
          y.rent, y.energy, y.licence, y.staff, y.other, y.tokens, y.revenue);
    }
  }
  return csv;
}

}  // namespace tare::econ
