"""Short texts of many kinds, to count tokens in: the same small story in several languages, then what else models read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

PARAGRAPHS = {
    "English": (
        "The ferry to the island leaves at seven, but most mornings it waits for the baker, who carries two baskets of warm bread up the "
        "ramp and never hurries. Nobody complains. By the time the harbour is out of sight, the captain has poured coffee for everybody, "
        "and the children on their way to school have finished at least half of their homework."
    ),
    "German": (
        "Die Fähre zur Insel fährt um sieben Uhr ab, doch an den meisten Tagen wartet sie auf die Bäckerin, die zwei Körbe mit warmem Brot "
        "die Rampe hinaufträgt und sich dabei niemals beeilt. Niemand beschwert sich. Bis der Hafen außer Sichtweite ist, hat der Kapitän "
        "allen Fahrgästen Kaffee eingeschenkt, und die Schulkinder haben mindestens die Hälfte ihrer Hausaufgaben erledigt."
    ),
    "French": (
        "Le bac pour l'île part à sept heures, mais presque tous les matins il attend la boulangère, qui monte deux paniers de pain chaud "
        "par la passerelle sans jamais se presser. Personne ne s'en plaint. Quand le port a disparu à l'horizon, le capitaine a déjà servi "
        "le café à tout le monde, et les enfants qui vont à l'école ont terminé au moins la moitié de leurs devoirs."
    ),
    "Spanish": (
        "El transbordador de la isla sale a las siete, pero casi todas las mañanas espera a la panadera, que sube por la rampa dos cestas "
        "de pan caliente y nunca se da prisa. Nadie se queja. Cuando el puerto ya no se ve, el capitán ha servido café a todo el mundo y "
        "los niños que van a la escuela han terminado por lo menos la mitad de sus deberes."
    ),
    "Chinese": (
        "去岛上的渡船七点开，但多数早晨它会等面包师。她提着两篮热面包慢慢走上跳板，从来不着急，也没有人抱怨。等到港口看不见的时候，"
        "船长已经给大家倒好了咖啡，上学的孩子们至少写完了一半作业。如果下雨，所有人都挤在船舱里，听老人讲从前没有桥也没有电话的日子。"
    ),
    "Japanese": (
        "島へ行く渡し船は七時に出ますが、たいていの朝はパン屋さんを待っています。彼女は焼きたてのパンを入れた籠を二つ抱えて、"
        "あわてることなくタラップを上がってきます。文句を言う人はいません。港が見えなくなるころには、船長がみんなにコーヒーを配り、"
        "学校へ通う子どもたちは宿題の半分くらいを終えています。"
    ),
    "Korean": (
        "섬으로 가는 배는 일곱 시에 떠나지만, 아침마다 빵집 주인을 기다려 주곤 합니다. 그녀는 따뜻한 빵이 담긴 바구니 두 개를 들고 "
        "서두르지 않고 천천히 올라옵니다. 불평하는 사람은 아무도 없습니다. 항구가 보이지 않을 무렵이면 선장은 모두에게 커피를 따라 주고, "
        "학교에 가는 아이들은 숙제를 절반쯤 끝내 놓습니다."
    ),
    "Arabic": (
        "تغادر العبّارة إلى الجزيرة في الساعة السابعة، لكنها تنتظر الخبّازة في معظم الأيام، فهي تحمل سلّتين من الخبز الساخن وتصعد "
        "ببطء ولا تستعجل أبدًا. لا أحد يشتكي من ذلك. وعندما يختفي الميناء عن الأنظار يكون القبطان قد قدّم القهوة للجميع، ويكون الأطفال "
        "الذاهبون إلى المدرسة قد أنهوا نصف واجباتهم على الأقل."
    ),
    "Hindi": (
        "द्वीप जाने वाली नाव सुबह सात बजे निकलती है, लेकिन ज़्यादातर दिनों में वह रोटी बेचने वाली महिला का इंतज़ार करती है, जो गरम रोटियों की दो "
        "टोकरियाँ लेकर धीरे-धीरे ऊपर आती है और कभी जल्दी नहीं करती। कोई शिकायत नहीं करता। जब तक बंदरगाह आँखों से ओझल होता है, कप्तान सबको "
        "चाय पिला चुका होता है और बच्चे अपना आधा गृहकार्य पूरा कर लेते हैं।"
    ),
    "Russian": (
        "Паром на остров отходит в семь часов, но почти каждое утро он ждёт женщину из пекарни, которая поднимается по трапу с двумя "
        "корзинами тёплого хлеба и никогда не торопится. Никто не жалуется. Когда гавань скрывается из виду, капитан уже налил всем кофе, "
        "а дети, которые едут в школу, успели сделать по меньшей мере половину домашних заданий."
    ),
    "code": (
        "def departures(timetable: list[Trip], after: datetime) -> Iterator[Trip]:\n"
        '    """Trips that leave after an instant, the next one first."""\n'
        "    for trip in sorted(timetable, key=lambda each: each.leaves_at):\n"
        "        if trip.leaves_at > after and not trip.cancelled:\n"
        "            yield trip\n\n\n"
        "if __name__ == '__main__':\n"
        "    for number, trip in enumerate(departures(load('ferry.csv'), datetime.now(UTC)), start=1):\n"
        "        print(f'{number:>3} {trip.name:<20} {trip.leaves_at:%H:%M}')\n"
    ),
    "JSON": (
        '{"ferry": {"name": "Aurora", "built": 1987, "seats": 140, "routes": [{"from": "Harbour", "to": "Island", "leaves": "07:00", '
        '"days": ["mon", "tue", "wed", "thu", "fri"], "fare": 4.5}, {"from": "Island", "to": "Harbour", "leaves": "17:30", "days": '
        '["mon", "tue", "wed", "thu", "fri", "sat"], "fare": 4.5, "bicycles": true}]}, "contact": {"phone": null, "open": false}}'
    ),
    "emoji": (
        "Off to the island! ⛴️🌊 The baker is late again 🥖🥐😅 but nobody minds 🙌. Coffee from the captain ☕️👨‍✈️, homework half done "
        "📚✏️🤓, and then… dolphins!! 🐬🐬🐬😍 Best Monday ever 💯🎉 See you tonight 👋🏽❤️ (bring an umbrella ☔️, they say 🌧️⚡️)"
    ),
}


def written(text: str, encoding: Encoding, size: int) -> Iterator[str]:
    """As a model writes it: so many tokens at a time, held back within a letter."""
    tokens, held = encoding.encode_ordinary(text), b""
    for start in range(0, len(tokens), size):
        held += encoding.decode_bytes(tokens[start : start + size])
        try:
            yield held.decode()
        except UnicodeDecodeError:
            continue
        held = b""
