// CSV of a scenario's yearly costs, and rows of the FinOps Open Cost and Usage Specification
// (FOCUS 1.0, focus.finops.org): its required columns, one row a month, option and kind of cost.
#include <fmt/format.h>

#include "econ/scenario_report.h"

namespace tare::econ {
namespace {

constexpr int kMonths = 12;

// RFC 4180: quoted when needed, quotes doubled.
std::string Cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

struct CostKind {
  const char* description;
  const char* category;       // ChargeCategory
  const char* service;        // ServiceName
  const char* service_group;  // ServiceCategory
  double YearCosts::*member;
};
constexpr CostKind kKinds[] = {
    {"hardware depreciation", "Usage", "Hardware", "Compute", &YearCosts::depreciation},
    {"device rent", "Usage", "Accelerator rent", "Compute", &YearCosts::rent},
    {"energy", "Usage", "Energy", "Other", &YearCosts::energy},
    {"licence", "Purchase", "Licence", "AI and Machine Learning", &YearCosts::licence},
    {"staff", "Usage", "Staff", "Other", &YearCosts::staff},
    {"audits, network and other", "Usage", "Other", "Other", &YearCosts::other},
    {"tokens", "Usage", "Tokens", "AI and Machine Learning", &YearCosts::tokens},
};

std::string MonthStart(int year, int month) {
  return fmt::format("{:04d}-{:02d}-01T00:00:00Z", year + (month - 1) / kMonths,
                     (month - 1) % kMonths + 1);
}

}  // namespace

std::string ScenarioCsv(const Scenario& scenario, const ScenarioAnswer& answer) {
  std::string csv =
      "option,year,currency,purchase,depreciation,rent,energy,licence,staff,other,tokens,"
      "revenue\r\n";
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    int year = 1;
    for (const YearCosts& y : answer.options[i].years) {
      csv += fmt::format(
          "{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f}\r\n",
          Cell(scenario.options[i].name), year++, scenario.currency, y.purchase, y.depreciation,
          y.rent, y.energy, y.licence, y.staff, y.other, y.tokens, y.revenue);
    }
  }
  return csv;
}

std::string ScenarioFocusCsv(const Scenario& scenario, const ScenarioAnswer& answer,
                             int first_year) {
  std::string csv =
      "BilledCost,BillingAccountId,BillingAccountName,BillingCurrency,BillingPeriodEnd,"
      "BillingPeriodStart,ChargeCategory,ChargeClass,ChargeDescription,ChargeFrequency,"
      "ChargePeriodEnd,ChargePeriodStart,ContractedCost,EffectiveCost,InvoiceIssuerName,ListCost,"
      "PricingQuantity,PricingUnit,ProviderName,PublisherName,ServiceCategory,ServiceName\r\n";
  for (std::size_t i = 0; i < answer.options.size(); ++i) {
    const std::string option = Cell(scenario.options[i].name);
    for (std::size_t year = 0; year < answer.options[i].years.size(); ++year) {
      for (const CostKind& kind : kKinds) {
        const double monthly = answer.options[i].years[year].*kind.member / kMonths;
        if (monthly == 0) continue;
        for (int month = 1; month <= kMonths; ++month) {
          const int at = static_cast<int>(year) * kMonths + month;
          const std::string start = MonthStart(first_year, at);
          const std::string end = MonthStart(first_year, at + 1);
          const std::string cost = fmt::format("{:.6f}", monthly);
          csv += fmt::format(
              "{cost},{option},{option},{currency},{end},{start},{category},,{what},{frequency},"
              "{end},{start},{cost},{cost},{option},{cost},1,month,{option},{option},{group},"
              "{service}\r\n",
              fmt::arg("cost", cost), fmt::arg("option", option),
              fmt::arg("currency", scenario.currency), fmt::arg("start", start),
              fmt::arg("end", end), fmt::arg("category", kind.category),
              fmt::arg("what", Cell(kind.description)),
              fmt::arg("frequency",
                       kind.category == std::string_view("Purchase") ? "Recurring" : "Usage-Based"),
              fmt::arg("group", kind.service_group), fmt::arg("service", kind.service));
        }
      }
    }
  }
  return csv;
}

}  // namespace tare::econ
