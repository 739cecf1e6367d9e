// The class scheduling application of FoundationDB's tutorial: many students sign up for few seats at once.
package main

import (
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"
)

const seats, classesAStudent = 20, 5

var course, attends subspace.Subspace

var errNoSeats, errTooMany = errors.New("no seats are left"), errors.New("too many classes")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func seatsOf(tr fdb.Transaction, class string) int {
	left, err := strconv.Atoi(string(tr.Get(course.Pack(tuple.Tuple{class})).MustGet()))
	check(err)
	return left
}

func setSeats(tr fdb.Transaction, class string, left int) {
	tr.Set(course.Pack(tuple.Tuple{class}), []byte(strconv.Itoa(left)))
}

func availableClasses(t fdb.Transactor) []string {
	found, err := t.ReadTransact(func(rtr fdb.ReadTransaction) (any, error) {
		var classes []string
		iterator := rtr.GetRange(course, fdb.RangeOptions{}).Iterator()
		for iterator.Advance() {
			row := iterator.MustGet()
			class, err := course.Unpack(row.Key)
			if err != nil {
				return nil, err
			}
			if string(row.Value) != "0" {
				classes = append(classes, class[0].(string))
			}
		}
		return classes, nil
	})
	check(err)
	return found.([]string)
}

func signup(t fdb.Transactor, student, class string) error {
	_, err := t.Transact(func(tr fdb.Transaction) (any, error) {
		record := attends.Pack(tuple.Tuple{student, class})
		if tr.Get(record).MustGet() != nil {
			return nil, nil
		}
		left := seatsOf(tr, class)
		if left == 0 {
			return nil, errNoSeats
		}
		if len(tr.GetRange(attends.Sub(student), fdb.RangeOptions{}).GetSliceOrPanic()) == classesAStudent {
			return nil, errTooMany
		}
		setSeats(tr, class, left-1)
		tr.Set(record, []byte{})
		return nil, nil
	})
	return err
}

func drop(t fdb.Transactor, student, class string) error {
	_, err := t.Transact(func(tr fdb.Transaction) (any, error) {
		record := attends.Pack(tuple.Tuple{student, class})
		if tr.Get(record).MustGet() != nil {
			setSeats(tr, class, seatsOf(tr, class)+1)
			tr.Clear(record)
		}
		return nil, nil
	})
	return err
}

func swap(t fdb.Transactor, student, old, new string) error {
	_, err := t.Transact(func(tr fdb.Transaction) (any, error) {
		if err := drop(tr, student, old); err != nil {
			return nil, err
		}
		return nil, signup(tr, student, new)
	})
	return err
}

func studentLife(db fdb.Database, number, moves int, classes []string) {
	student, choice := fmt.Sprint("student", number), rand.New(rand.NewSource(int64(number)))
	for i := 0; i < moves; i++ {
		one, other := classes[choice.Intn(len(classes))], classes[choice.Intn(len(classes))]
		var err error
		switch choice.Intn(3) {
		case 0:
			err = drop(db, student, one)
		case 1:
			err = swap(db, student, one, other)
		default:
			err = signup(db, student, one)
		}
		if err != nil && !errors.Is(err, errNoSeats) && !errors.Is(err, errTooMany) {
			panic(err)
		}
	}
}

func main() {
	fdb.MustAPIVersion(730)
	db := fdb.MustOpenDefault()
	scheduling, err := directory.CreateOrOpen(db, []string{"scheduling"}, nil)
	check(err)
	course, attends = scheduling.Sub("class"), scheduling.Sub("attends")
	var classes []string
	for hour := 2; hour < 20; hour++ {
		for _, subject := range []string{"chem", "bio", "cs", "film", "music", "art"} {
			classes = append(classes, fmt.Sprintf("%d:00 %s", hour, subject))
		}
	}
	_, err = db.Transact(func(tr fdb.Transaction) (any, error) {
		tr.ClearRange(scheduling)
		for _, class := range classes {
			setSeats(tr, class, seats)
		}
		return nil, nil
	})
	check(err)
	if len(availableClasses(db)) != len(classes) {
		panic("classes are missing")
	}
	var students sync.WaitGroup
	for number := 0; number < 40; number++ {
		students.Add(1)
		// Debian's Go has one variable for all rounds of a loop.
		go func(number int) {
			defer students.Done()
			studentLife(db, number, 30, classes[:6])
		}(number)
	}
	students.Wait()
	_, err = db.Transact(func(tr fdb.Transaction) (any, error) {
		taken := map[string]int{}
		for _, row := range tr.GetRange(attends, fdb.RangeOptions{}).GetSliceOrPanic() {
			record, err := attends.Unpack(row.Key)
			check(err)
			taken[record[1].(string)]++
		}
		for _, class := range classes {
			if left := seatsOf(tr, class); left < 0 || left+taken[class] != seats {
				return nil, fmt.Errorf("%s: %d seats are left, %d are taken", class, left, taken[class])
			}
		}
		return nil, nil
	})
	check(err)
	fmt.Println("done")
}
