#include "eval/sample_texts.h"

namespace tare::eval {
namespace {

constexpr std::string_view kCalibration =
    R"text(The ferry left the harbour a little after six, when the lamps along the quay were
still lit. On the upper deck a woman in a yellow coat counted the islands as they came out of the
mist, the way her grandfather had taught her: first the one shaped like a loaf, then the two that
touch at low tide, then the long one where nobody has lived since the well went dry. She wrote
each name into a small book. By the time the sun was up the book held eleven names, and the coffee
in her cup had gone cold.

Question: How do I remove a red wine stain from a cotton shirt?
Answer: Act quickly and do not rub. Blot the stain with a clean cloth, then pour cold water
through the back of the fabric until it runs clear. Work in a spoonful of liquid soap mixed with a
little white vinegar, wait ten minutes, and rinse. If a shadow remains, soak the shirt in oxygen
bleach for an hour and wash it as usual. Check the result before you dry it, because heat fixes
what is left.

A heat engine takes energy from a hot source, turns part of it into work and gives the rest to
something colder. The share that can become work depends only on the two temperatures, measured
from absolute zero. If the source is at 600 kelvin and the sink at 300, no engine can do better
than one half, however well it is built. Real engines lose more: gases rub against walls, valves
leak, and every process that runs in finite time makes some disorder that cannot be undone.
Engineers therefore ask two questions of any machine. How far is it from the limit, and what would
it cost to come closer?

def moving_average(values, width):
    """Mean of each run of `width` neighbours; shorter at the start."""
    if width < 1:
        raise ValueError("width must be at least 1")
    total = 0.0
    window = []
    result = []
    for value in values:
        window.append(value)
        total += value
        if len(window) > width:
            total -= window.pop(0)
        result.append(total / len(window))
    return result

print(moving_average([3, 5, 8, 13, 21], 3))

In the year 1348 a ship from the east brought more to the port than cloth and pepper. Within a few
months half of the streets near the water were empty. Those who could leave went to the hills;
those who stayed learned to mark doors, to burn clothes, and to bury their neighbours without a
bell. When it was over, land was cheap and labour was dear. A ploughman could ask for twice his
old wage and get it, and laws that forbade him to ask were written, read aloud in the market, and
ignored. Historians still argue over how much of the later change began there.

"You said the part would be here on Monday," Daniel said.
"I said it would be shipped on Monday." The clerk turned the screen so that he could see it. "It
is in a van somewhere between here and the coast. Look, it moves."
"It has moved in a circle for two days."
"Then it will be well travelled." She smiled, then saw his face and stopped. "I can lend you one
from the workshop. It is older, but it fits the same thread. You bring it back when yours comes."
He thought about the boiler, and about his mother, who would never complain and would wear three
sweaters. "All right," he said. "What do I sign?"

Shopping list and plan for Saturday:
- 2 kg flour, 500 g butter, a dozen eggs, salt, yeast
- candles (at least 40), matches, paper napkins
- call the hall about the key; Ms. Okafor has it after 3 p.m.
- ask Tom whether the speakers need an adapter
1. Bake the day before. 2. Set tables by noon. 3. Lights off at 18:30, then sing.

The immune system must solve a hard problem of recognition. It has to answer to shapes it has
never met and leave alone the shapes of the body itself. It does so by making receptors at random,
in great number, and by testing each young cell against a display of the body's own proteins.
Cells that bind too strongly are killed; cells that cannot bind at all die of neglect. What
remains is a library that knows nothing about any particular germ and yet holds something for
nearly all of them. When one of its volumes fits an invader, the cell that carries it divides, and
some of its daughters live on for decades as memory.

To solve 3x + 7 = 22, subtract 7 from both sides, which gives 3x = 15, and divide by 3, so x = 5.
A rectangle with sides of 12 cm and 9 cm has an area of 108 square centimetres and a diagonal of
15 cm, since 144 + 81 = 225. If a train covers 210 km in 2 hours and 20 minutes, its mean speed is
90 km per hour. The probability of throwing at least one six in four throws of a die is 1 -
(5/6)^4, about 0.518.

User: Write a polite note to a neighbour whose dog barks at night.
Assistant: Dear neighbour, I hope you are well. Over the past week your dog has been barking
between about two and four in the morning, and it has been hard for us to sleep. Perhaps you have
not noticed, or perhaps something outside disturbs him. Would it be possible to keep him indoors
at night for a while? I am glad to help if there is anything we can do, such as trimming the hedge
by the fence. With kind regards, Ana.

SELECT c.name, COUNT(o.id) AS orders, SUM(o.total) AS revenue
FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.id
WHERE o.created_at >= '2023-01-01' OR o.id IS NULL
GROUP BY c.name HAVING COUNT(o.id) < 5 ORDER BY revenue DESC LIMIT 20;

The city council met on Tuesday evening to discuss the new bus lanes. Shop owners on Mill Street
fear that customers who come by car will stay away, while the transport office points to a trial
in the north of the city, where trade fell in the first two months and then rose above its old
level. A decision was put off until spring. Until then, counters at six crossings will record how
many people pass on foot, by bicycle, by bus and by car. The figures will be published every
month.

A good contract says who does what, by when, and what happens if they do not. It need not be long.
The parties should be named in full, the goods or services described so that a stranger could
check them, and the price stated together with the day on which it is due. Terms that limit
liability deserve a slow reading, as do those that renew an agreement unless somebody remembers to
end it. If a sentence can be understood in two ways, one day it will be.

Der Zug hatte Verspätung, und niemand wusste warum. Le marché ouvre à sept heures, mais les
meilleurs légumes partent avant huit heures. El río baja frío de la montaña y atraviesa el
pueblo sin hacer ruido. 今天的天气很好，我们一起去公园散步吧。
)text";

constexpr std::string_view kMeasuring =
    R"text(Nobody had opened the observatory for nine winters. The dome still turned when Marta
leaned on the wheel, slowly, with a groan that woke the swallows under the eaves. Dust lay on the
eyepiece and on the logbook beside it, whose last entry read: cloud from the west, seeing poor,
home by eleven. She wiped the glass with her sleeve, found the handle that moved the tube in
height, and waited for the sky to grow dark enough to show her something she had never looked for.

Bread rises because yeast eats sugar and breathes out gas. The dough has to be strong enough to
hold the bubbles and soft enough to stretch around them, and that is what kneading is for: it
lines up the proteins of the flour into a net. Warm dough ferments fast and tastes of little; cool
dough takes all night and tastes of more. Before baking, bakers cut the crust so that the loaf can
open where they want it to. In the first ten minutes of the oven the gas swells, water turns to
steam, and the loaf grows by a third. Then the starch sets and the shape is final.

User: What is the difference between weather and climate?
Assistant: Weather is what happens outside today or this week: rain this afternoon, wind from the
north tomorrow. Climate is the pattern of weather over many years, usually thirty or more. You
choose your coat by the weather and your house by the climate. A single cold winter says little
about climate, in the same way that one unlucky hand says little about the rules of the game.

class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def withdraw(self, amount):
        if amount > self.balance:
            raise RuntimeError("not enough money")
        self.balance -= amount
        return self.balance

account = Account("Lena", 120)
account.withdraw(45)

Markets for used goods have a peculiar weakness. The seller knows whether the machine was cared
for, and the buyer does not. A careful buyer therefore offers the price of an average machine, at
which owners of good ones would rather keep them. The average falls, the offers fall with it, and
in the end only the worst machines are for sale. Warranties, inspections and a reputation worth
protecting are ways out of this trap: each of them makes it costly to lie, so that an honest word
carries weight again.

The river Arden is 214 kilometres long and drains an area of 5,800 square kilometres. It rises at
a height of 1,340 metres, falls over three rapids in its first 20 kilometres, and from the town of
Hale onwards it can be used by boats of up to 300 tonnes. Floods were common until 1927, when two
dams were finished; since then the highest level measured at Hale was 6.2 metres, in March 1981.
Salmon returned in the 1990s after the paper mills built treatment plants.

"Is it far?" the boy asked.
"It depends on what you carry," said the old man, and took one of the two bags from him. They
walked without talking for a while. At the top of the hill the boy turned around and saw the whole
valley, with the roof of the school like a red stamp on a letter. He had not known that it was so
small.

To change a bicycle tube, first shift to the smallest gear and open the brake. Loosen the axle and
lift the wheel out. Push one edge of the tyre over the rim with two levers, pull the old tube out,
and run your fingers along the inside of the tyre until you find what caused the hole. Put a
little air into the new tube, lay it in without twists, and press the tyre back with your thumbs.
Finally check that nothing is pinched, pump it up, and spin the wheel before you ride.

A theory earns trust by what it forbids. If every outcome would have agreed with it, then
agreement teaches us nothing. The best ones are exposed on all sides: they name a number, a place
and a time, and invite anyone with a good instrument to look. Most fail there, quietly, and are
replaced by others that fail a little further on. What we call knowledge is the part of this
process that has stood still long enough to build on.
)text";

}  // namespace

std::string_view CalibrationText() { return kCalibration; }
std::string_view MeasuringText() { return kMeasuring; }

}  // namespace tare::eval
